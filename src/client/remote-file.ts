import type { Link } from "./link.ts";

/**
 * A file that is open on the server. Ends with its connection: after a loss its calls reject.
 *
 * @example
 * await using file = await client.files.open("/var/log/build.log");
 * const { chunk, eof } = await file.read(0, 4096);
 */
export class RemoteFile implements AsyncDisposable {
  readonly #link: () => Link;
  readonly #handleId: string;
  #isClosed = false;

  constructor(link: () => Link, handleId: string) {
    this.#link = link;
    this.#handleId = handleId;
  }

  /** Up to `length` bytes (at most 1 MiB) from `offset`; `eof` when the file ended before. */
  read(offset: number, length: number): Promise<{ chunk: Uint8Array; eof: boolean }> {
    const params = { handleId: this.#handleId, offset, len: length };
    return this.#link().call("fs/readBlock", params, { resend: "unsent" });
  }

  /** Writes at most 1 MiB at `offset`. */
  async write(offset: number, chunk: Uint8Array): Promise<void> {
    const params = { handleId: this.#handleId, offset, chunk };
    await this.#link().call("fs/writeBlock", params, { resend: "unsent" });
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // Also right on a new connection: closing a handle that is not there is no error.
    await this.#link().call("fs/close", { handleId: this.#handleId });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
