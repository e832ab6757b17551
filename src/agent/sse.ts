/** Cuts a server-sent event stream into the `data` of its events, whatever the boundaries of the chunks. */
export class SseParser {
  #buffer = "";
  #data: string[] = [];
  #dataChars = 0;

  /** Returns the data of every event that this chunk completes. */
  push(chunk: string): string[] {
    const events: string[] = [];
    const text = this.#buffer === "" ? chunk : this.#buffer + chunk;
    let start = 0;
    for (;;) {
      const end = nextLineEnd(text, start);
      if (!end) break;
      this.#line(text.slice(start, end.at), events);
      start = end.next;
    }
    this.#buffer = start === 0 ? text : text.slice(start);
    if (this.#buffer.length + this.#dataChars > MAX_EVENT_CHARS) {
      throw new Error(`an event of the stream is larger than ${MAX_EVENT_CHARS} characters`);
    }
    return events;
  }

  #line(line: string, events: string[]): void {
    if (line === "") {
      if (this.#data.length > 0) events.push(this.#data.join("\n"));
      this.#data = [];
      this.#dataChars = 0;
      return;
    }
    // Only `data` matters: the kind of an event is repeated inside it, and `:` lines are keep-alives.
    if (!line.startsWith("data")) return;
    if (line.length > 4 && line[4] !== ":") return;
    const value = line.slice(line[5] === " " ? 6 : 5);
    this.#data.push(value);
    this.#dataChars += value.length;
  }
}

/** Far above any real event; a stream without line ends must not grow for ever. */
const MAX_EVENT_CHARS = 64 * 1024 * 1024;

/** A line ends with LF, CR LF or CR; a CR at the very end waits, because an LF may follow in the next chunk. */
function nextLineEnd(text: string, from: number): { at: number; next: number } | undefined {
  const lf = text.indexOf("\n", from);
  const cr = text.indexOf("\r", from);
  if (cr !== -1 && (lf === -1 || cr < lf)) {
    if (cr === text.length - 1) return undefined;
    return { at: cr, next: text[cr + 1] === "\n" ? cr + 2 : cr + 1 };
  }
  return lf === -1 ? undefined : { at: lf, next: lf + 1 };
}
