import { existsSync, readFileSync } from "node:fs";
import { type Cast, readCast } from "../../client/recording/asciicast.ts";
import { exportRecording } from "../../client/recording/export-recording.ts";
import { QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { type Command, defineCommand, singleArgument, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  requireServerUrl,
} from "../options/connect-options.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { runInterruptible } from "../support/interruptible-run.ts";
import { OutputPipe } from "../terminal/process-output.ts";

const HELP = `Usage: procwire replay [options] FILE|ID

Shows a recording (asciicast version 2 or 3), or what a process of a server has shown, at the pace at which it was written.

  --speed N          N times as fast; default 1
  --idle-limit SECONDS  no pause is longer than this; default: as it was
${CONNECT_HELP}
An argument that is not a file is an ID. ${HANDLE_HELP}Without --connect: ${DEFAULT_URL}.
`;

export const command: Command = defineCommand({
  name: "replay",
  summary: "show a recording, or what a process of a server has shown",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    speed: { type: "string" },
    "idle-limit": { type: "string" },
  },

  async run(values, positionals) {
    const what = singleArgument(positionals, "FILE or ID");
    const speed = positive("speed", values.speed) ?? 1;
    const idleLimitMs = (positive("idle-limit", values["idle-limit"]) ?? Number.POSITIVE_INFINITY) * 1000;
    const cast = existsSync(what)
      ? readCast(readFileSync(what, "utf8"))
      : await fromServer(what, requireServerUrl(values.connect), values);
    return runInterruptible(async (signal) => forceExit(await play(cast, { speed, idleLimitMs, signal })));
  },
});

async function fromServer(id: string, url: string, values: Parameters<typeof connectTo>[1]): Promise<Cast> {
  await using client = await connectTo(url, values);
  const { handle } = await findProcess(client, id);
  await using child = await client.attach(handle);
  return readCast((await exportRecording(child)).text);
}

interface ReplaySpeed {
  speed: number;
  idleLimitMs: number;
  signal: AbortSignal;
}

/** Input, marks and sizes are not shown. */
async function play({ events }: Cast, { speed, idleLimitMs, signal }: ReplaySpeed): Promise<number> {
  const output = new OutputPipe(process.stdout);
  // Recorded terminal queries must not be answered again.
  const filter = new QueryStripper();
  let lastMs = 0;
  for (const { atMs, code, data } of events) {
    await sleepUntil(Math.min(atMs - lastMs, idleLimitMs) / speed, signal);
    if (signal.aborted) return 130;
    lastMs = atMs;
    if (code === "o" && !(await output.write(filter.push(Buffer.from(data))))) return 0;
  }
  await output.write(filter.flush());
  await output.flush();
  return 0;
}

function sleepUntil(ms: number, signal: AbortSignal): Promise<void> {
  if (!(ms >= 1) || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
  });
}

function positive(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new UsageError(`invalid --${name} \`${text}\`; expected a positive number`);
}
