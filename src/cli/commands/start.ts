import { parseArgs } from "node:util";
import { hasErrorCode } from "../../base/error-code.ts";
import { jobsDirectory } from "../../fanout/ledger/jobs-directory.ts";
import { consoleAssetsPath } from "../../host/console-assets.ts";
import { createLocalHost } from "../../host/local-host.ts";
import { tokenMessage } from "../../host/run-main.ts";
import { exitImmediately } from "../../native/exit-now.ts";
import { startLibuvThreads } from "../../native/libuv-threads.ts";
import { isSourceCheckout } from "../../native/native-files.ts";
import { parseAuthFlags } from "../../server/auth/auth-config.ts";
import { ExecServer } from "../../server/exec-server.ts";
import { runUntilSignal } from "../../server/lifecycle/run-server.ts";
import { writeStandardLine } from "../../server/lifecycle/stdio-stream.ts";
import { listen } from "../../server/listen/listen.ts";
import { ServerMetrics } from "../../server/observability/server-metrics.ts";
import { stderrLog } from "../../server/observability/stderr-log.ts";
import { type Command, UsageError } from "../command.ts";
import { forceExit } from "../support/forced-exit.ts";
import { DATABASE_URL_VARIABLE, startJobsThread } from "../support/jobs-reader.ts";

/** First port to try; the next ones follow while a port is in use. */
const FIRST_PORT = 7070;
const MAX_PORTS_TRIED = 100;

export const command: Command = {
  async run(argv) {
    if (argv.includes("--help") || argv.includes("-h")) {
      process.stdout.write(HELP);
      return 0;
    }
    const { auth, newToken } = parseAuthFlags({ wsAuth: chooseAuth(argv) });
    const log = stderrLog("warn");
    const host = createLocalHost({ log, subreaper: true, keepFreedMemory: true });
    const server = new ExecServer({ ...host, metrics: new ServerMetrics() });
    startLibuvThreads();
    // The console shows the jobs that `procwire jobs` lists in this directory.
    const directory = jobsDirectory(process.env, process.cwd());
    const jobs = startJobsThread({ directory, databaseUrl: process.env[DATABASE_URL_VARIABLE] || undefined });
    const listening = await listenOnFreePort(server, { auth, web: { directory: consoleAssetsPath(), jobs } });
    writeStandardLine(2, `procwire exec-server listening on ${listening.url}`);
    writeStandardLine(1, listening.url);
    if (newToken !== undefined) writeStandardLine(2, tokenMessage(listening.url, newToken));
    writeStandardLine(2, gettingStartedText(listening.url, listening.loginUrl()));
    for (const part of server.degradedComponents()) log("warn", part);
    await runUntilSignal(server, { listening, exit: exitImmediately });
    return forceExit(0);
  },
};

const HELP = `Usage: procwire start [--ws-auth auto]

Serve on the first free port of 127.0.0.1 from ${FIRST_PORT} on, and print first steps.

Options:
  --ws-auth auto  generate a token that clients must send, and print it once
`;

function chooseAuth(argv: string[]): "auto" | undefined {
  const { values, positionals } = parseArgs({
    args: argv,
    options: { "ws-auth": { type: "string" } },
    allowPositionals: true,
    strict: false,
  });
  const { "ws-auth": wsAuth, ...others } = values;
  const [unexpected] = [...positionals, ...Object.keys(others).map((name) => `--${name}`)];
  if (unexpected !== undefined)
    throw new UsageError(`unexpected argument \`${unexpected}\`; use \`procwire serve\` for more options`);
  if (wsAuth === undefined || wsAuth === "auto") return wsAuth;
  throw new UsageError(`unsupported --ws-auth \`${wsAuth}\`; use \`procwire serve\` for other kinds`);
}

async function listenOnFreePort(server: ExecServer, options: Parameters<typeof listen>[2]) {
  for (let port = FIRST_PORT; ; port++) {
    try {
      return await listen(server, { type: "websocket", host: "127.0.0.1", port }, options);
    } catch (error) {
      const isInUse = hasErrorCode(error, "EADDRINUSE");
      if (!isInUse || port >= FIRST_PORT + MAX_PORTS_TRIED) throw error;
    }
  }
}

function gettingStartedText(url: string, loginUrl: string | null): string {
  const procwire = isSourceCheckout() ? "bin/procwire" : "procwire";
  return `
Open the web console (this URL works once, within 15 minutes):
  ${loginUrl}
Try, in another terminal:
  ${procwire} run --connect ${url} -- uname -a
  ${procwire} run --connect ${url} --tty -- bash
  ${procwire} ps --connect ${url}
  CODEX_EXEC_SERVER_URL=${url} codex exec 'list the files here'
Ctrl-C stops the server and its processes.`;
}
