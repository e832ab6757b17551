import { errorMessage } from "../../base/error-message.ts";
import type { AttachedProcess } from "../../client/process/attached-process.ts";
import { readRetainedOutput } from "../../client/process/retained-output.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, singleArgument, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { parseSince } from "../options/parse-duration.ts";
import { parseCount } from "../options/parse-number.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { LineFilter, LineTimestamps, type LoggedChunk, lastLines } from "../support/log-lines.ts";
import { gapMessage, ProcessOutput } from "../terminal/process-output.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] ID"],
  details: "Writes the retained output of the process: stdout to stdout, stderr to stderr.",
  options: {
    Output: [
      ["-f, --follow", "follow the output until the process closes"],
      ["-t, --timestamps", "start each line with the time of its output"],
      ["--since TIME", "print only output since TIME: 90s, 15m, 2h, 1d ago, or 2026-01-31T09:30:00Z"],
      ["-n, --tail N", "print only the last N lines of the earlier output"],
      ["-g, --grep PATTERN", "print only lines that match this regular expression, before --tail counts them"],
    ],
  },
  examples: [
    ["procwire logs api", "print the retained output"],
    ["procwire logs --follow --tail 100 --timestamps api", "the last 100 lines, then new output, with times"],
    ["procwire logs --since 15m --grep 'error|warn' --connect ssh://build-host k3v7", "errors of the last 15 minutes"],
  ],
};

export const command: Command = defineServerCommand("logs", HELP, {
  ids: { includesExited: true },
  options: {
    follow: { type: "boolean", short: "f" },
    timestamps: { type: "boolean", short: "t" },
    since: { type: "string" },
    tail: { type: "string", short: "n" },
    grep: { type: "string", short: "g" },
  },

  async run(values, positionals) {
    const id = singleArgument(positionals, "ID");
    const since = values.since === undefined ? null : parseSince("since", values.since);
    const tail = parseCount("tail", values.tail, 0);
    const filter = values.grep === undefined ? null : new LineFilter(parsePattern(values.grep));
    await using client = await openClient(values);
    const { handle, startedAtMs } = await findProcess(client, id);
    await using child = await client.attach(handle);
    const { chunks, ageMs, throughSeq, missedBytes } = await readRetainedOutput(child);
    // Durations count back from the server's clock, which may differ from the clock of this host.
    const firstMs = since === null ? 0 : since.type === "agoMs" ? startedAtMs + ageMs - since.ms : since.ms;
    const earlier = chunks
      .map(({ atMs, ...chunk }) => ({ ...chunk, timeMs: startedAtMs + atMs }))
      .filter(({ timeMs }) => timeMs >= firstMs);
    const output = new LogOutput(values.timestamps ?? false);
    if (since === null && tail === undefined) reportGap(missedBytes);
    const matching = filter ? earlier.flatMap((chunk) => filter.push(chunk)) : earlier;
    if (filter && !values.follow) matching.push(...filter.flush());
    for (const chunk of tail === undefined ? matching : lastLines(matching, tail))
      if (!(await output.write(chunk))) return forceExit(0);
    if (values.follow) {
      const times = values.timestamps ? new OutputTimes(child, startedAtMs) : null;
      for await (const logged of follow(child, throughSeq, times))
        for (const chunk of filter ? filter.push(logged) : [logged])
          if (!(await output.write(chunk))) return forceExit(0);
      for (const chunk of filter?.flush() ?? []) await output.write(chunk);
    }
    await output.flush();
    return forceExit(0);
  },
});

/** Stdout and stderr, optionally with a time before each line. */
class LogOutput {
  readonly #output = new ProcessOutput();
  readonly #timestamps: LineTimestamps | null;

  constructor(hasTimestamps: boolean) {
    this.#timestamps = hasTimestamps ? new LineTimestamps() : null;
  }

  /** Resolves to false when the reader closed the pipe. */
  write(logged: LoggedChunk): Promise<boolean> {
    const chunk = this.#timestamps ? this.#timestamps.push(logged) : logged.chunk;
    return this.#output.write({ stream: logged.stream, chunk });
  }

  flush(): Promise<void> {
    return this.#output.flush();
  }
}

/** Yields new output until the process closes. Without `times`, `timeMs` is 0. */
async function* follow(
  child: AttachedProcess,
  afterSeq: number,
  times: OutputTimes | null,
): AsyncGenerator<LoggedChunk> {
  for await (const event of child.events({ afterSeq, lossless: true })) {
    if (event.type === "output") yield { ...event, timeMs: times ? await times.of(event.seq) : 0 };
    if (event.type === "gap") reportGap(event.bytes);
    if (event.type === "failed") throw event.error;
  }
}

/** Times of output that this client follows. Events have no times, so it reads them, for many events at once. */
class OutputTimes {
  readonly #child: AttachedProcess;
  readonly #startedAtMs: number;
  readonly #known = new Map<number, number>();

  constructor(child: AttachedProcess, startedAtMs: number) {
    this.#child = child;
    this.#startedAtMs = startedAtMs;
  }

  /** Resolves to the time of the output with this sequence number; to the time of the next output if it was evicted. */
  async of(seq: number): Promise<number> {
    if (!this.#known.has(seq)) {
      const page = await this.#child.read({ afterSeq: seq - 1, maxBytes: TIMES_PAGE_BYTES, times: true });
      const { chunks, times = [], ageMs = 0 } = page;
      this.#known.clear();
      for (const [at, chunk] of chunks.entries()) this.#known.set(chunk.seq, times[at] ?? ageMs);
      if (!this.#known.has(seq)) this.#known.set(seq, times[0] ?? ageMs);
    }
    return this.#startedAtMs + (this.#known.get(seq) ?? 0);
  }
}

/** Output of one read of times: enough for few round trips. */
const TIMES_PAGE_BYTES = 256 * 1024;

function reportGap(bytes: number | null): void {
  if (bytes !== 0) standardStream(2).write(`procwire logs: ${gapMessage(bytes)}\n`);
}

function parsePattern(text: string): RegExp {
  try {
    return new RegExp(text, "u");
  } catch (error) {
    throw new UsageError(`invalid --grep \`${text}\`: ${errorMessage(error)}`);
  }
}
