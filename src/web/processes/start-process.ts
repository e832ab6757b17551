import type { ExecServerClient } from "../../client/browser.ts";
import { DEFAULT_ENV_POLICY } from "../../exec/backend/secret-filter.ts";

/** Terminal type of the terminals in the console. */
const TERM = "xterm-256color";

/** Starts a login shell, or a command in one, in a terminal that survives the page. Resolves to its handle. */
export async function startDetached(client: ExecServerClient, command: string): Promise<string> {
  const { shell, userHomeDir, cwd } = await client.info();
  const argv = command === "" ? [shell.path, "-l"] : [shell.path, "-lc", command];
  const process = await client.start({
    processId: crypto.randomUUID(),
    argv,
    cwd: userHomeDir ?? cwd ?? "/",
    env: { TERM, COLORTERM: "truecolor" },
    envPolicy: DEFAULT_ENV_POLICY,
    tty: true,
    size: { rows: 24, cols: 80 },
    lifetime: "server",
    terminalQueries: "server",
  });
  const { handle } = await process.snapshot();
  if (handle === undefined) throw new Error("the server returned no process handle");
  // The console attaches to it like to every other process.
  await process.detach();
  return handle;
}
