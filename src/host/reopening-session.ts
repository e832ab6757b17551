import { Watch } from "../async/watch.ts";
import type { ConnectionState } from "../client/exec-server-client.ts";
import { ReopeningBackend, type SessionBackend } from "../exec/backend/reopening-backend.ts";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import { connectServer, type ServerAddress } from "./connect-server.ts";

/** Opens a session that is replaced by a new one if the server restarts or loses it. */
export async function openReopeningSession(
  address: ServerAddress,
): Promise<{ backend: ReopeningBackend; info: EnvironmentInfo }> {
  const first = await openSession(address);
  try {
    const info = await first.info();
    return { backend: new ReopeningBackend(first, () => openSession(address)), info };
  } catch (error) {
    await first.close();
    throw error;
  }
}

async function openSession(address: ServerAddress): Promise<SessionBackend & { info(): Promise<EnvironmentInfo> }> {
  const state = new Watch<ConnectionState["type"]>("connected");
  const client = await connectServer(address, ({ type }) => state.set(type));
  return {
    backend: client.backend,
    info: () => client.call("environment/info", {}),
    close: () => client.close(),
    async isUsable() {
      const changes = state.subscribe();
      while (state.value === "reconnecting") await changes.changed();
      return state.value === "connected";
    },
  };
}
