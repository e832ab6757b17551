import type { ExecServerClient } from "../../client/browser.ts";
import { DEFAULT_ENV_POLICY } from "../../exec/backend/secret-filter.ts";
import { rememberDriven } from "./driven-process.ts";
import { startInTerminal } from "./start-in-terminal.ts";

/** Starts a login shell, or a command in one. The page of the process then drives it. Resolves to its handle. */
export async function startDetached(client: ExecServerClient, command: string): Promise<string> {
  const { shell } = await client.info();
  const argv = command === "" ? [shell.path, "-l"] : [shell.path, "-lc", command];
  const env = { COLORTERM: "truecolor" };
  const handle = await startInTerminal(client, { argv, env, envPolicy: DEFAULT_ENV_POLICY });
  rememberDriven(handle);
  return handle;
}
