import type { AttachedProcess } from "../../client/process/attached-process.ts";
import { readRetainedOutput, type TimedChunk } from "../../client/process/retained-output.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, singleArgument, UsageError } from "../command.ts";
import { parseCount } from "../options/parse-number.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { gapMessage, ProcessOutput } from "../terminal/process-output.ts";

const HELP = `Usage: procwire logs [OPTIONS] ID

Write the retained output of a process: stdout to stdout, stderr to stderr.

Options:
  -f, --follow      follow the output until the process closes
  --since DURATION  print only output of the last DURATION: 90s, 15m, 2h, 1d
  --tail N          print only the last N lines
`;

export const command: Command = defineServerCommand({
  help: HELP,
  notes: HANDLE_HELP,
  options: {
    follow: { type: "boolean", short: "f" },
    since: { type: "string" },
    tail: { type: "string" },
  },

  async run(values, positionals) {
    const id = singleArgument(positionals, "ID");
    const sinceMs = values.since === undefined ? undefined : parseDuration(values.since);
    const tail = parseCount("tail", values.tail, 0);
    await using client = await openClient(values);
    const { handle } = await findProcess(client, id);
    await using child = await client.attach(handle);
    const { chunks, ageMs, throughSeq, missedBytes } = await readRetainedOutput(child);
    const recent = chunks.filter(({ atMs }) => sinceMs === undefined || ageMs - atMs <= sinceMs);
    const output = new ProcessOutput();
    if (sinceMs === undefined && tail === undefined) reportGap(missedBytes);
    for (const chunk of tail === undefined ? recent : lastLines(recent, tail))
      if (!(await output.write(chunk))) return forceExit(0);
    if (values.follow) await follow(child, throughSeq, output);
    await output.flush();
    return forceExit(0);
  },
});

async function follow(child: AttachedProcess, afterSeq: number, output: ProcessOutput): Promise<void> {
  for await (const event of child.events({ afterSeq, lossless: true })) {
    if (event.type === "output" && !(await output.write(event))) return;
    if (event.type === "gap") reportGap(event.bytes);
    if (event.type === "failed") throw event.error;
  }
}

function reportGap(bytes: number | null): void {
  if (bytes !== 0) standardStream(2).write(`procwire logs: ${gapMessage(bytes)}\n`);
}

/** Returns the chunks of the last `count` lines. An unterminated last line counts. */
export function lastLines(chunks: readonly TimedChunk[], count: number): TimedChunk[] {
  const selected: TimedChunk[] = [];
  let lines = 0;
  // A line feed at the end of the output ends the last line; it starts no new one.
  let isEnd = true;
  for (const timed of chunks.toReversed()) {
    const { chunk } = timed;
    for (let at = chunk.length - 1; at >= 0; at--) {
      const isFinished = chunk[at] === LINE_FEED && !isEnd;
      isEnd = false;
      if (isFinished && ++lines === count) return [{ ...timed, chunk: chunk.subarray(at + 1) }, ...selected];
    }
    selected.unshift(timed);
  }
  return count === 0 ? [] : selected;
}

const LINE_FEED = 10;
const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

export function parseDuration(text: string): number {
  const [, number, unit = "s"] = /^(\d+(?:\.\d+)?)([smhd])?$/.exec(text) ?? [];
  if (number === undefined)
    throw new UsageError(`invalid --since \`${text}\`; expected a duration such as 90s, 15m, 2h or 1d`);
  return Number(number) * UNITS[unit as keyof typeof UNITS];
}
