import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { ExecProcess, Gap } from "../exec-process.ts";
import { checkArgument, checkOptions } from "../options/option-schema.ts";
import { linesOptions, processKind } from "../options/process-options.ts";
import { matchesStream, type StreamOptions } from "./stream-bytes.ts";

/** Longer lines are split into pieces of this many characters, so that a stream without newlines stays bounded. */
const MAX_LINE_CHARS = 1024 * 1024;

export interface LinesOptions extends StreamOptions {
  /** Only output after this sequence number. */
  afterSeq?: number | undefined;
  /** At a gap: throw an error (default), or yield the gap between the lines. */
  onGap?: "throw" | "yield" | undefined;
}

/**
 * Yields the lines that a process writes, without their terminators (`\n` or `\r\n`). Yields an unterminated last
 * line when the process is closed. The process is paused rather than a line skipped. A gap, from output evicted
 * before the call or lost with a connection, is handled as `onGap` says.
 *
 * @example
 * for await (const line of lines(process)) console.log(line);
 */
export function lines(
  process: ExecProcess,
  options: LinesOptions & { onGap: "yield" },
): AsyncGenerator<string | Gap, void, undefined>;
export function lines(
  process: ExecProcess,
  options?: LinesOptions & { onGap?: "throw" | undefined },
): AsyncGenerator<string, void, undefined>;
export async function* lines(
  process: ExecProcess,
  options: LinesOptions = {},
): AsyncGenerator<string | Gap, void, undefined> {
  checkArgument("lines", "process", process, processKind);
  checkOptions("lines", options, linesOptions);
  const { stream, afterSeq, signal, onGap = "throw" } = options;
  let decoder = new TextDecoder();
  let rest = "";
  const events = process.events({ lossless: true, afterSeq, signal });
  for await (const event of events) {
    if (event.type === "failed") throw event.error;
    if (event.type === "gap") {
      const { fromSeq, toSeq, bytes } = event;
      if (onGap === "throw") throw new ExecServerError(gapText(process.processId, event), "GAP");
      // The line before a gap is incomplete, and the output after it starts a new line.
      rest += decoder.decode();
      decoder = new TextDecoder();
      if (rest !== "") yield rest;
      rest = "";
      yield { fromSeq, toSeq, bytes };
      continue;
    }
    if (event.type !== "output" || !matchesStream(event.stream, stream)) continue;
    const text = rest + decoder.decode(event.chunk, { stream: true });
    const found = text.split("\n");
    rest = found.pop() ?? "";
    for (const line of found) yield withoutReturn(line);
    while (rest.length > MAX_LINE_CHARS) {
      yield rest.slice(0, MAX_LINE_CHARS);
      rest = rest.slice(MAX_LINE_CHARS);
    }
  }
  rest += decoder.decode();
  if (rest !== "") yield withoutReturn(rest);
}

function gapText(processId: string, { fromSeq, toSeq, bytes }: Gap): string {
  const amount = bytes === null ? "an unknown amount of output" : `${bytes} bytes of output`;
  return `${amount} of process ${processId} is no longer retained (events ${fromSeq} to ${toSeq}); read from the start, or take gaps with onGap: "yield"`;
}

function withoutReturn(line: string): string {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}
