import { RE2JS } from "re2js";
import type { OutputStream } from "../exec-process.ts";

/** Maximum characters of a match that precede the chunk which completes it. */
const OVERLAP_CHARS = 8 * 1024;
/** Match time grows with text length times program size; these two limits bound one slice to about 100 ms. */
const SLICE_CHARS = 8 * 1024;
const MAX_PROGRAM_SIZE = 1000;
/** Work (characters times instructions) after which the matcher yields to the event loop. */
const MAX_WORK_PER_TICK = 4_000_000;

/**
 * Searches a pattern in output that arrives in chunks, which may split a character. Each stream is a separate text.
 * The engine takes linear time; long texts and large patterns are processed in slices, with yields to the event loop.
 */
export class OutputMatcher {
  readonly #pattern: RE2JS;
  readonly #programSize: number;
  readonly #texts = new Map<OutputStream, StreamText>();
  #workSinceYield = 0;

  /** Throws if the pattern does not compile or is too large. */
  constructor(pattern: string) {
    this.#pattern = RE2JS.compile(pattern);
    this.#programSize = this.#pattern.programSize();
    if (this.#programSize > MAX_PROGRAM_SIZE)
      throw new Error(`pattern compiles to ${this.#programSize} instructions, more than ${MAX_PROGRAM_SIZE}`);
  }

  /** Returns the first match that this chunk completes, or null. */
  async push(stream: OutputStream, chunk: Uint8Array): Promise<string | null> {
    let text = this.#texts.get(stream);
    if (!text) {
      text = new StreamText();
      this.#texts.set(stream, text);
    }
    const added = text.decode(chunk);
    for (let at = 0; at < added.length; at += SLICE_CHARS) {
      const match = this.#find(text, added.slice(at, at + SLICE_CHARS));
      if (match !== null) return match;
      if (this.#workSinceYield > MAX_WORK_PER_TICK) {
        this.#workSinceYield = 0;
        await new Promise((resolve) => setTimeout(resolve));
      }
    }
    return null;
  }

  /** Discards the text seen so far, because output is missing here. */
  skip(): void {
    this.#texts.clear();
  }

  #find(text: StreamText, added: string): string | null {
    text.window += added;
    this.#workSinceYield += text.window.length * this.#programSize;
    const matcher = this.#pattern.matcher(text.window);
    // Starts at 1 if the window lost its beginning, so that `^` and `\b` see the preceding character.
    if (matcher.find(text.isCut ? 1 : 0)) return matcher.group() ?? "";
    if (text.window.length > OVERLAP_CHARS + 1) {
      text.window = text.window.slice(-(OVERLAP_CHARS + 1));
      text.isCut = true;
    }
    return null;
  }
}

class StreamText {
  window = "";
  /** True once the window no longer starts at the beginning of the output. */
  isCut = false;
  readonly #decoder = new TextDecoder();

  decode(chunk: Uint8Array): string {
    return this.#decoder.decode(chunk, { stream: true });
  }
}
