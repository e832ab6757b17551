/** A text that the replacer searches for, and the text that it writes instead. */
export interface Replacement {
  from: string;
  to: string;
}

/**
 * Replaces texts in a stream of bytes. Gives the same bytes as a replacement in the whole stream, for every division into
 * chunks: it holds back at most the beginning of a match. At one position the longest text wins.
 */
export class SecretReplacer {
  readonly #replacements: readonly { from: Buffer; to: Buffer }[];
  #held: Buffer = Buffer.alloc(0);
  /** Number of replacements so far. */
  count = 0;

  constructor(replacements: readonly Replacement[]) {
    this.#replacements = replacements
      .filter(({ from }) => from !== "")
      .map(({ from, to }) => ({ from: Buffer.from(from), to: Buffer.from(to) }))
      .sort((a, b) => b.from.length - a.from.length);
  }

  /** Returns the bytes that are complete. */
  push(chunk: Buffer): Buffer {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const parts: Buffer[] = [];
    const end = this.#replaceComplete(bytes, this.#heldFrom(bytes), parts);
    this.#held = bytes.subarray(end);
    return parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
  }

  /** Returns the rest after the last chunk. */
  end(): Buffer {
    const parts: Buffer[] = [];
    this.#replaceComplete(this.#held, this.#held.length, parts);
    this.#held = Buffer.alloc(0);
    return Buffer.concat(parts);
  }

  /** Writes the bytes before `limit`; a match that begins before it is complete. Returns the end of the written bytes. */
  #replaceComplete(bytes: Buffer, limit: number, parts: Buffer[]): number {
    let from = 0;
    // Positions of the next match per text, so that each text is searched once.
    const next = this.#replacements.map((replacement) => bytes.indexOf(replacement.from));
    for (;;) {
      let best = -1;
      for (const [index, at] of next.entries()) {
        const text = this.#replacements[index]?.from;
        const found = at >= 0 && at < from && text ? bytes.indexOf(text, from) : at;
        next[index] = found;
        // The texts are sorted by length, so the first one at a position is the longest.
        if (found >= 0 && found < limit && (best < 0 || found < (next[best] ?? 0))) best = index;
      }
      const match = this.#replacements[best];
      const at = next[best] ?? 0;
      if (!match) break;
      parts.push(bytes.subarray(from, at), match.to);
      this.count++;
      from = at + match.from.length;
    }
    const end = Math.max(from, limit);
    parts.push(bytes.subarray(from, end));
    return end;
  }

  /** Returns the first position at which the chunk may end within a text. */
  #heldFrom(bytes: Buffer): number {
    let first = bytes.length;
    for (const { from } of this.#replacements) {
      for (let at = Math.max(0, bytes.length - from.length + 1); at < first; at++)
        if (bytes.compare(from, 0, bytes.length - at, at) === 0) first = at;
    }
    return first;
  }
}

/** Replaces texts in a complete text. */
export function replaceTexts(text: string, replacements: readonly Replacement[]): string {
  const replacer = new SecretReplacer(replacements);
  const bytes = Buffer.from(text, "latin1");
  const replaced = Buffer.concat([replacer.push(bytes), replacer.end()]);
  return replacer.count === 0 ? text : replaced.toString("latin1");
}
