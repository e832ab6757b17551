/** The response to a WebSocket upgrade, read from the bytes of a stream. */
export class UpgradeResponse {
  /** HTTP status; null until the head is complete. */
  status: number | null = null;
  readonly headers = new Map<string, string>();
  /** Bytes behind the head: frames after status 101, otherwise the start of the body. */
  rest: Buffer = Buffer.alloc(0);
  readonly #maxHeadBytes: number;
  readonly #maxBodyBytes: number;

  constructor(maxHeadBytes: number, maxBodyBytes: number) {
    this.#maxHeadBytes = maxHeadBytes;
    this.#maxBodyBytes = maxBodyBytes;
  }

  /** Adds received bytes. Returns whether the response is complete. Throws if the bytes are not an HTTP response. */
  push(chunk: Buffer): boolean {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    while (this.status === null) {
      const end = this.rest.indexOf("\r\n\r\n");
      const head = this.rest.toString("latin1", 0, end < 0 ? this.rest.length : end);
      if (head.length > this.#maxHeadBytes || !isStartOfHead(head)) throw parseError();
      if (end < 0) return false;
      this.rest = this.rest.subarray(end + 4);
      this.#readHead(head);
    }
    return this.status === 101 || this.#isBodyComplete();
  }

  #readHead(head: string): void {
    const [first = "", ...lines] = head.split("\r\n");
    const digits = first.slice("HTTP/1.1 ".length, "HTTP/1.1 200".length);
    if (!/^[1-9]\d\d$/.test(digits)) throw parseError();
    const status = Number(digits);
    // Another response follows an informational one.
    if (status < 200 && status !== 101) return;
    this.status = status;
    for (const line of lines) {
      const colon = line.indexOf(":");
      this.headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
    }
  }

  /** An error message contains only the start of a body: of a chunked one, the start of its first chunk. */
  #isBodyComplete(): boolean {
    if (this.headers.get("transfer-encoding")?.toLowerCase() === "chunked") {
      const lineEnd = this.rest.indexOf("\r\n");
      const chunkBytes = Math.min(Number.parseInt(this.rest.toString("latin1", 0, lineEnd), 16), this.#maxBodyBytes);
      if (lineEnd >= 0 && this.rest.length >= lineEnd + 2 + chunkBytes) {
        this.rest = this.rest.subarray(lineEnd + 2, lineEnd + 2 + chunkBytes);
        return true;
      }
    }
    // Also bounds a body without a valid length.
    if (this.rest.length > this.#maxBodyBytes) return true;
    const length = this.headers.get("content-length");
    return length !== undefined && this.rest.length >= Number(length);
  }
}

function isStartOfHead(text: string): boolean {
  const start = "HTTP/1.";
  return text.startsWith(start) || start.startsWith(text);
}

function parseError(): Error {
  return Object.assign(new Error("Parse Error: Expected HTTP/"), { code: "HPE_INVALID_CONSTANT" });
}
