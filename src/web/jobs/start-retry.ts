import type { ExecServerClient } from "../../client/browser.ts";
import type { EnvPolicy } from "../../exec/exec-process.ts";
import type { RetryResult } from "../../protocol/console/console-job-schemas.ts";
import { startInTerminal } from "../processes/start-in-terminal.ts";

/** The whole environment of the server: a run needs the API key of the model. */
const SERVER_ENVIRONMENT: EnvPolicy = {
  ...{ inherit: "all", ignoreDefaultExcludes: true, exclude: [], set: {}, includeOnly: [] },
};

/** Starts the process that runs retried rows. It survives the page. Resolves to its handle. */
export function startRetry(client: ExecServerClient, { argv, env }: NonNullable<RetryResult["run"]>): Promise<string> {
  return startInTerminal(client, { argv, env, envPolicy: SERVER_ENVIRONMENT });
}
