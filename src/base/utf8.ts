/** Where bytes of text may be cut without cutting a character. What is not UTF-8 may be cut anywhere. */

/** How many bytes at the end are the beginning of a character whose rest is missing: 0 to 3. */
export function incompleteTail(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (isContinuation(byte)) continue;
    return sequenceLength(byte) > back ? back : 0;
  }
  return 0;
}

/** How many bytes at the beginning are the rest of a character that began before: 0 to 3. */
export function incompleteHead(bytes: Uint8Array): number {
  let count = 0;
  while (count < Math.min(3, bytes.length) && isContinuation(bytes[count] ?? 0)) count++;
  return count;
}

/** Hands on whole characters only: the beginning of one waits for its rest. One for each stream. */
export class WholeCharacters {
  #waiting = new Uint8Array(0);

  push(chunk: Uint8Array): Uint8Array {
    const bytes = this.#waiting.length === 0 ? chunk : concat(this.#waiting, chunk);
    const whole = bytes.subarray(0, bytes.length - incompleteTail(bytes));
    this.#waiting = bytes.slice(whole.length);
    return whole;
  }

  /** What still waits, at the end of the stream. */
  rest(): Uint8Array {
    const rest = this.#waiting;
    this.#waiting = new Uint8Array(0);
    return rest;
  }
}

function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}

function sequenceLength(lead: number): number {
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
