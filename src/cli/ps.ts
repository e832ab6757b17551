import { parseArgs } from "node:util";
import type { ProcessListing } from "../exec/exec-process.ts";
import { visibleJson, visibleLine, visibleWord } from "../protocol/visible-text.ts";
import type { Command } from "./command.ts";
import { CONNECT_HELP, CONNECT_OPTIONS, connectTo } from "./connect-options.ts";

/** Where `procwire start` serves. */
const DEFAULT_URL = "ws://127.0.0.1:7070";

const HELP = `Usage: procwire ps [options]

Lists the processes of a server: handle, id, pid, state, age, output, command. They are those of your own sessions, or of
all for an operator, who is told whose they are.

  --json             one JSON object a line
${CONNECT_HELP}
Without --connect: ${DEFAULT_URL}.
`;

export const command: Command = {
  name: "ps",
  summary: "list the processes of a server's sessions",

  async run(argv) {
    const { values } = parseArgs({
      args: argv,
      options: { ...CONNECT_OPTIONS, json: { type: "boolean" }, help: { type: "boolean", short: "h" } },
    });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    await using client = await connectTo(values.connect ?? DEFAULT_URL, values);
    // A session that was named is the one to look at; else everything the server has.
    const processes = await client.list({ allSessions: values.session === undefined });
    process.stdout.write(
      values.json ? processes.map((one) => `${visibleJson(one)}\n`).join("") : table(processes, Date.now()),
    );
    return 0;
  },
};

function table(processes: ProcessListing[], nowMs: number): string {
  const hasPrincipals = processes.some((one) => one.principal !== undefined);
  const principal = (cell: string) => (hasPrincipals ? [visibleLine(cell)] : []);
  const rows = [
    ["HANDLE", ...principal("PRINCIPAL"), "ID", "PID", "STATE", "AGE", "OUTPUT", "COMMAND"],
    ...processes.map((one) => [
      visibleLine(one.handle ?? "-"),
      ...principal(one.principal ?? "-"),
      visibleWord(one.processId),
      one.pid === null ? "-" : String(one.pid),
      stateOf(one),
      `${Math.max(0, Math.round((nowMs - one.startedAtMs) / 1000))}s`,
      String(one.outputBytes),
      one.argv.map(visibleWord).join(" "),
    ]),
  ];
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join("");
}

function stateOf({ running, signal, exitCode }: ProcessListing): string {
  if (running) return "running";
  return visibleLine(signal ?? `exit ${exitCode ?? "?"}`);
}
