import { asked } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import type { ParamsOf } from "../../protocol/methods.ts";
import type { Link } from "../session/reconnecting-session.ts";
import { toPathUri } from "../wire-path.ts";

/** What a part must be to become the file, and what the file gets. */
export type PartEnd = Omit<ParamsOf<"fs/commit">, "handleId" | "path">;

/**
 * A file that is open on the server. Ends with its connection: after a loss its calls reject.
 *
 * @example
 * await using file = await client.files.open("/var/log/build.log");
 * const { chunk, eof } = await file.read(0, 4096);
 */
export class RemoteFile implements AsyncDisposable {
  readonly path: string;
  readonly #link: () => Link;
  readonly #handleId: string;
  #isClosed = false;

  /** @internal */
  constructor(link: () => Link, handleId: string, path: string) {
    this.#link = link;
    this.#handleId = handleId;
    this.path = path;
  }

  /** Up to `length` bytes (at most 1 MiB) from `offset`; `eof` when the file ended before. */
  read(
    offset: number,
    length: number,
    { signal }: CallOptions = {},
  ): Promise<{ chunk: Uint8Array; eof: boolean }> {
    const params = { handleId: this.#handleId, offset, len: length };
    return this.#asked(
      "fs/readBlock",
      () => this.#link().call("fs/readBlock", params, { resend: "unsent" }),
      signal,
    );
  }

  /** Writes at most 1 MiB at `offset`. */
  write(offset: number, chunk: Uint8Array, { signal }: CallOptions = {}): Promise<void> {
    const params = { handleId: this.#handleId, offset, chunk };
    const write = async () => void (await this.#link().call("fs/writeBlock", params, { resend: "unsent" }));
    return this.#asked("fs/writeBlock", write, signal);
  }

  /** The SHA-256 of its first `length` bytes; null when it is shorter. */
  async checksum(length: number, { signal }: CallOptions = {}): Promise<string | null> {
    const params = { handleId: this.#handleId, length };
    const ask = () => this.#link().call("fs/checksum", params, { resend: "unsent" });
    return (await this.#asked("fs/checksum", ask, signal)).sha256;
  }

  /** Ends a part: it must be what `whole` says, and is renamed. It is closed then. */
  async commit(path: string, whole: PartEnd, { signal }: CallOptions = {}): Promise<void> {
    const params = { handleId: this.#handleId, path: toPathUri(path), ...whole };
    await this.#asked(
      "fs/commit",
      () => this.#link().call("fs/commit", params, { resend: "unsent" }),
      signal,
    );
    this.#isClosed = true;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // Also right on a new connection: closing a handle that is not there is no error.
    await this.#asked("fs/close", () => this.#link().call("fs/close", { handleId: this.#handleId }));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #asked<T>(method: string, call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return asked({ method, path: this.path }, call, signal);
  }
}
