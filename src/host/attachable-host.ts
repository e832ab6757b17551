import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { guardSecrets } from "../exec/backend/secret-filter.ts";
import { availableSandboxes } from "../sandbox/sandbox-probe.ts";
import { ExecServer } from "../server/exec-server.ts";
import { listen } from "../server/listen/listen.ts";
import { connectServer } from "./connect-server.ts";
import type { ConnectedHost, HostOptions } from "./exec-host.ts";
import { createLocalHost } from "./local-host.ts";

/**
 * This machine behind a server of this program's own, on a unix socket that only this user can open: what a person needs to
 * attach to the terminals of a model that works here.
 */
export async function connectAttachable({ cwd, guard }: HostOptions): Promise<ConnectedHost> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "procwire-attach-")));
  const path = join(folder, "socket");
  await using opening = new AsyncDisposableStack();
  opening.defer(() => rmSync(folder, { recursive: true, force: true }));
  // No command behind walls reaches the socket.
  const server = opening.use(new ExecServer(createLocalHost({ hidden: [folder] })));
  const listening = await listen(server, { type: "unix", path });
  opening.defer(async () => {
    listening.drop();
    await listening.close();
  });
  // A loss of a server in this program is final.
  const client = opening.use(await connectServer({ url: listening.url }));
  const opened = opening.move();
  return {
    backend: guardSecrets(client.backend, guard),
    cwd: cwd ?? process.cwd(),
    shell: null,
    sandboxes: availableSandboxes(),
    realPath: (named) => realpathSync(resolve(named)),
    isAlive: () => true,
    attachUrl: listening.url,
    renewals: () => 0,
    close: () => opened.disposeAsync(),
  };
}
