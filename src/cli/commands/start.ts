import { join } from "node:path";
import { parseArgs } from "node:util";
import { hasErrorCode } from "../../base/error-code.ts";
import { shellQuote } from "../../base/text/printable-text.ts";
import { jobsDirectory } from "../../fanout/ledger/jobs-directory.ts";
import { consoleAssetsPath } from "../../host/console-assets.ts";
import { createLocalHost } from "../../host/local-host.ts";
import { makeProcessPrivate } from "../../host/native-support.ts";
import { exitImmediately } from "../../native/exit-now.ts";
import { startLibuvThreads } from "../../native/libuv-threads.ts";
import { isSourceCheckout, packageRoot } from "../../native/native-files.ts";
import { parseAuthFlags } from "../../server/auth/auth-config.ts";
import { ExecServer } from "../../server/exec-server.ts";
import { runUntilSignal } from "../../server/lifecycle/run-server.ts";
import { writeStandardLine } from "../../server/lifecycle/stdio-stream.ts";
import { listen } from "../../server/listen/listen.ts";
import { ServerMetrics } from "../../server/observability/server-metrics.ts";
import { stderrLog } from "../../server/observability/stderr-log.ts";
import { type Command, defineParsedCommand, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { forceExit } from "../support/forced-exit.ts";
import { DATABASE_URL_VARIABLE, startJobsThread } from "../support/jobs-reader.ts";
import { tokenFilePath, writeTokenFile } from "../support/token-file.ts";

/** First port to try; the next ones follow while a port is in use. */
const FIRST_PORT = 7070;
const MAX_PORTS_TRIED = 100;

const OPTIONS = { "ws-auth": { type: "string" } } as const;

const HELP: HelpPage = {
  usage: ["[--ws-auth auto]"],
  details: `Serves on the first free port of 127.0.0.1 from ${FIRST_PORT} on. Use \`procwire serve\` for other addresses and
    more options.`,
  options: { Authentication: [["--ws-auth auto", "generate a token that clients must send, and write it to a file"]] },
  examples: [
    ["procwire start", "serve this host to programs of this host"],
    ["procwire start --ws-auth auto", "require a token, on a host with other users"],
    ["procwire start 2>start.log & procwire ps --wait 5", "in the background; wait until it serves"],
  ],
};

export const command: Command = defineParsedCommand("start", HELP, {
  options: OPTIONS,
  parse: (argv) => (argv.includes("--help") || argv.includes("-h") ? null : { wsAuth: chooseAuth(argv) }),

  async run({ wsAuth }) {
    makeProcessPrivate();
    const { auth, newToken } = parseAuthFlags({ wsAuth });
    const log = stderrLog("warn");
    const tokenFile = newToken === undefined ? null : tokenFilePath();
    const maskedPaths = tokenFile === null ? [] : [tokenFile];
    const host = createLocalHost({ log, maskedPaths, subreaper: true, keepFreedMemory: true });
    const server = new ExecServer({ ...host, metrics: new ServerMetrics() });
    startLibuvThreads();
    // The console shows the jobs that `procwire jobs` lists in this directory.
    const directory = jobsDirectory(process.env, process.cwd());
    const jobs = startJobsThread({ directory, databaseUrl: process.env[DATABASE_URL_VARIABLE] || undefined });
    const listening = await listenOnFreePort(server, { auth, web: { directory: consoleAssetsPath(), jobs } });
    writeStandardLine(2, `procwire exec-server listening on ${listening.url}`);
    writeStandardLine(1, listening.url);
    if (tokenFile !== null && newToken !== undefined) writeTokenFile(tokenFile, newToken);
    writeStandardLine(2, gettingStartedText(listening.url, listening.loginUrl(), tokenFile));
    for (const part of server.degradedComponents()) log("warn", part);
    await runUntilSignal(server, { listening, exit: exitImmediately });
    return forceExit(0);
  },
});

function chooseAuth(argv: string[]): "auto" | undefined {
  const { values, positionals } = parseArgs({
    args: argv,
    options: OPTIONS,
    allowPositionals: true,
    strict: false,
  });
  const { "ws-auth": wsAuth, ...others } = values;
  const [unexpected] = [...Object.keys(others).map((name) => `--${name}`), ...positionals];
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

function gettingStartedText(url: string, loginUrl: string | null, tokenFile: string | null): string {
  const procwire = programName();
  const server = tokenFile === null ? `--connect ${url}` : `--connect ${url} --token-file ${shellQuote(tokenFile)}`;
  // Codex cannot send a token.
  const codex = tokenFile === null ? `\n  CODEX_EXEC_SERVER_URL=${url} codex exec 'list the files here'` : "";
  const token = tokenFile === null ? "" : `\nThe token that clients must send, until the server stops:\n  ${tokenFile}`;
  return `
Open the web console (this URL works once, within 15 minutes):
  ${loginUrl}${token}
Try, in another terminal:
  ${procwire} run ${server} -- uname -a
  ${procwire} run ${server} --tty -- bash
  ${procwire} ps ${server}
  ${procwire} console ${server}${codex}
Ctrl-C stops the server and its processes.`;
}

/** Returns the program as a user types it in this directory. */
function programName(): string {
  const root = isSourceCheckout() ? packageRoot() : null;
  if (root === null) return "procwire";
  return root === process.cwd() ? "bin/procwire" : shellQuote(join(root, "bin", "procwire"));
}
