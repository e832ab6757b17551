import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { filterSecrets } from "../exec/backend/secret-filter.ts";
import { formatCredential } from "../protocol/network/credential-definition.ts";
import { ExecServer } from "../server/exec-server.ts";
import { listen } from "../server/listen/listen.ts";
import { connectServer } from "./connect-server.ts";
import type { ConnectedHost, LocalExecHostOptions } from "./exec-host.ts";
import { localSandboxes } from "./host-sandboxes.ts";
import { createLocalHost } from "./local-host.ts";

/**
 * Runs the local host behind an in-process server on a Unix socket that only this user can open. Users can then attach to
 * the terminals of a model that works on this host.
 */
export async function connectAttachableHost({
  cwd,
  secretFilter,
  masked,
  credentials = [],
}: LocalExecHostOptions): Promise<ConnectedHost> {
  const directory = realpathSync(mkdtempSync(join(tmpdir(), "procwire-attach-")));
  const path = join(directory, "socket");
  await using opening = new AsyncDisposableStack();
  opening.defer(() => rmSync(directory, { recursive: true, force: true }));
  const config = { credentials: credentials.map(formatCredential) };
  // No sandboxed process can connect to the socket.
  const server = opening.use(new ExecServer(createLocalHost({ maskedPaths: [directory, ...masked], config })));
  const listening = await listen(server, { type: "unix", path });
  opening.defer(async () => {
    listening.destroyPending();
    await listening.close();
  });
  // An in-process server that is lost cannot be reconnected.
  const client = opening.use(await connectServer({ url: listening.url }));
  const opened = opening.move();
  return {
    backend: filterSecrets(client.backend, secretFilter),
    cwd: cwd ?? process.cwd(),
    shell: null,
    sandboxes: localSandboxes(),
    realPath: (named) => realpathSync(resolve(named)),
    isSandboxedPeer: (peer) => server.isSandboxedPeer(peer),
    isAlive: () => true,
    attachUrl: listening.url,
    reopenCount: () => 0,
    close: () => opened.disposeAsync(),
  };
}
