import { RE2JS } from "re2js";
import type { OutputStream } from "../exec-process.ts";

/** A match may begin this many characters before the text that completes it. */
const OVERLAP_CHARS = 8 * 1024;
/** The engine's time grows with text times program; these two bound one piece of work to about a tenth of a second. */
const SLICE_CHARS = 8 * 1024;
const MAX_PROGRAM_SIZE = 1000;
/** Pieces of work below this many (characters times instructions) need no rest in between. */
const UNRESTED_WORK = 4_000_000;

/**
 * Looks for a pattern in output that comes in pieces cut anywhere, also inside a character. Each stream is a text of
 * its own. The engine takes linear time; long texts and large patterns are worked through in slices with rests.
 */
export class OutputMatcher {
  readonly #pattern: RE2JS;
  readonly #programSize: number;
  readonly #texts = new Map<OutputStream, StreamText>();
  #workSinceRest = 0;

  /** Throws when the pattern does not compile, or is too large. */
  constructor(pattern: string) {
    this.#pattern = RE2JS.compile(pattern);
    this.#programSize = this.#pattern.programSize();
    if (this.#programSize > MAX_PROGRAM_SIZE)
      throw new Error(`it compiles to ${this.#programSize} instructions, more than ${MAX_PROGRAM_SIZE}`);
  }

  /** The first match that this chunk completes, or null. */
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
      if (this.#workSinceRest > UNRESTED_WORK) {
        this.#workSinceRest = 0;
        await new Promise((resolve) => setTimeout(resolve));
      }
    }
    return null;
  }

  /** Output is missing here: what was seen does not join what follows. */
  skip(): void {
    this.#texts.clear();
  }

  #find(text: StreamText, added: string): string | null {
    text.window += added;
    this.#workSinceRest += text.window.length * this.#programSize;
    const matcher = this.#pattern.matcher(text.window);
    // From 1 when the window has lost its beginning: the character before tells `^` and `\b` what they stand behind.
    if (matcher.find(text.cut ? 1 : 0)) return matcher.group() ?? "";
    if (text.window.length > OVERLAP_CHARS + 1) {
      text.window = text.window.slice(-(OVERLAP_CHARS + 1));
      text.cut = true;
    }
    return null;
  }
}

class StreamText {
  window = "";
  /** The window no longer begins where the output began. */
  cut = false;
  readonly #decoder = new TextDecoder();

  decode(chunk: Uint8Array): string {
    return this.#decoder.decode(chunk, { stream: true });
  }
}
