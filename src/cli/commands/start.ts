import { parseArgs } from "node:util";
import { jobsHome } from "../../fanout/ledger/jobs-directory.ts";
import { webFolder } from "../../host/console-assets.ts";
import { createLocalHost } from "../../host/local-host.ts";
import { tokenHint } from "../../host/run-main.ts";
import { exitNow } from "../../native/exit-now.ts";
import { makeNodeThreads } from "../../native/libuv-threads.ts";
import { isClone } from "../../native/native-files.ts";
import { authFromFlags } from "../../server/auth/auth-config.ts";
import { ExecServer } from "../../server/exec-server.ts";
import { runUntilSignalled } from "../../server/lifecycle/run-server.ts";
import { writeStandardLine } from "../../server/lifecycle/stdio-stream.ts";
import { listen } from "../../server/listen/listen.ts";
import { ServerFigures } from "../../server/observability/server-metrics.ts";
import { stderrLog } from "../../server/observability/stderr-log.ts";
import { type Command, UsageError } from "../command.ts";
import { leave } from "../leave.ts";
import { askJobsOf, DATABASE_VARIABLE } from "../support/jobs-reader.ts";

/** Where `npm start` serves; the next free one is taken when something else is there. */
const FIRST_PORT = 7070;
const PORTS_TRIED = 100;

export const command: Command = {
  name: "start",
  summary: "serve on ws://127.0.0.1:7070 and say what to try",

  async run(argv) {
    if (argv.includes("--help") || argv.includes("-h")) {
      process.stdout.write(HELP);
      return 0;
    }
    const { auth, newToken } = authFromFlags({ wsAuth: wantedAuth(argv) });
    const log = stderrLog("warn");
    const host = createLocalHost({ log, subreaper: true, keepFreedMemory: true });
    const server = new ExecServer({ ...host, figures: new ServerFigures() });
    makeNodeThreads();
    // Those that `procwire jobs` would list here.
    const folder = jobsHome(process.env, process.cwd());
    const jobs = askJobsOf({ folder, databaseUrl: process.env[DATABASE_VARIABLE] || undefined });
    const listening = await listenOnFreePort(server, { auth, web: { folder: webFolder(), jobs } });
    writeStandardLine(2, `procwire exec-server listening on ${listening.url}`);
    writeStandardLine(1, listening.url);
    if (newToken !== undefined) writeStandardLine(2, tokenHint(listening.url, newToken));
    writeStandardLine(2, whatToTry(listening.url, listening.loginUrl()));
    for (const part of server.degraded()) log("warn", part);
    await runUntilSignalled(server, listening, exitNow);
    return leave(0);
  },
};

const HELP = `Usage: procwire start [--ws-auth auto]

Serves on the first free port from 7070 on 127.0.0.1 and prints what to try.

  --ws-auth auto  make a token that clients have to bring, and show it once
`;

function wantedAuth(argv: string[]): "auto" | undefined {
  const { values, positionals } = parseArgs({
    args: argv,
    options: { "ws-auth": { type: "string" } },
    allowPositionals: true,
    strict: false,
  });
  const { "ws-auth": wsAuth, ...others } = values;
  const [unexpected] = [...positionals, ...Object.keys(others).map((name) => `--${name}`)];
  if (unexpected !== undefined)
    throw new UsageError(`unexpected argument \`${unexpected}\`; \`procwire serve\` takes options`);
  if (wsAuth === undefined || wsAuth === "auto") return wsAuth;
  throw new UsageError(`unsupported --ws-auth \`${wsAuth}\` here; \`procwire serve\` takes the others`);
}

async function listenOnFreePort(server: ExecServer, options: Parameters<typeof listen>[2]) {
  for (let port = FIRST_PORT; ; port++) {
    try {
      return await listen(server, { type: "websocket", host: "127.0.0.1", port }, options);
    } catch (error) {
      const taken = error instanceof Error && "code" in error && error.code === "EADDRINUSE";
      if (!taken || port >= FIRST_PORT + PORTS_TRIED) throw error;
    }
  }
}

function whatToTry(url: string, loginUrl: string | null): string {
  const procwire = isClone() ? "bin/procwire" : "procwire";
  return `
Open the web console (this address works once, within 15 minutes):
  ${loginUrl}
Try, in another terminal:
  ${procwire} run --connect ${url} -- uname -a
  ${procwire} run --connect ${url} --tty -- bash
  ${procwire} ps --connect ${url}
  CODEX_EXEC_SERVER_URL=${url} codex exec 'list the files here'
Ctrl-C stops the server and everything it started.`;
}
