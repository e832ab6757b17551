import type { ExecServerClient } from "../../client/browser.ts";
import type { EnvPolicy } from "../../exec/exec-process.ts";

/** Terminal type of the terminals in the console. */
const TERM = "xterm-256color";

/** A command of the console. */
export interface TerminalCommand {
  argv: string[];
  env: Record<string, string>;
  envPolicy: EnvPolicy;
}

/** Starts a command in a terminal that survives the page. Resolves to its handle. */
export async function startInTerminal(
  client: ExecServerClient,
  { argv, env, envPolicy }: TerminalCommand,
): Promise<string> {
  const { userHomeDir, cwd } = await client.info();
  const process = await client.start({
    processId: crypto.randomUUID(),
    argv,
    cwd: userHomeDir ?? cwd ?? "/",
    env: { ...env, TERM },
    envPolicy,
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
