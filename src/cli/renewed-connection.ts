import { Watch } from "../async/watch.ts";
import type { ConnectionState } from "../client/exec-server-client.ts";
import { RenewedBackend, type SessionBackend } from "../exec/renewed-backend.ts";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import { type ConnectValues, connectTo } from "./connect-options.ts";

/** A server's processes and what kind of host it is, also after it was restarted or has forgotten the session. */
export async function connectRenewed(
  url: string,
  values: ConnectValues,
): Promise<{ backend: RenewedBackend; info: EnvironmentInfo }> {
  const first = await openSession(url, values);
  try {
    const info = await first.info();
    return { backend: new RenewedBackend(first, () => openSession(url, values)), info };
  } catch (error) {
    await first.close();
    throw error;
  }
}

async function openSession(
  url: string,
  values: ConnectValues,
): Promise<SessionBackend & { info(): Promise<EnvironmentInfo> }> {
  const state = new Watch<ConnectionState["type"]>("connected");
  const client = await connectTo(url, values, ({ type }) => state.set(type));
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
