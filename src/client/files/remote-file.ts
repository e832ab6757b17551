import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { type InputData, toInputBytes } from "../../exec/options/input-bytes.ts";
import { checkArgument, checkOptions, count } from "../../exec/options/option-schema.ts";
import { checkCall, checkWrite } from "../../exec/options/process-checks.ts";
import type { ParamsOf } from "../../protocol/methods.ts";
import { checksumOptions, commitOptions, pathKind } from "../client-options.ts";
import { toPathUri } from "../rpc/path-conversion.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";

export interface ChecksumOptions extends CallOptions {
  /** 16 random bytes. The server also uses it for the digest of a later `commit`. */
  gmacKey?: Uint8Array | undefined;
}

/** Required content of a partial file, and attributes of the final file. */
export type CommitOptions = Omit<ParamsOf<"fs/commit">, "handleId" | "path">;

/**
 * An open file on the server. It is closed when its connection is lost; its calls then reject.
 *
 * @example
 * await using file = await client.files.open("/var/log/build.log");
 * const { chunk, eof } = await file.read(0, 4096);
 */
export class RemoteFile implements AsyncDisposable {
  readonly path: string;
  readonly #session: ReconnectingSession;
  readonly #handleId: string;
  #isClosed = false;

  /** @internal */
  constructor(session: ReconnectingSession, handleId: string, path: string) {
    this.#session = session;
    this.#handleId = handleId;
    this.path = path;
  }

  /** Reads up to `length` bytes (at most 1 MiB) from `offset`; `eof` is true if the file ends before. */
  read(offset: number, length: number, options: CallOptions = {}): Promise<{ chunk: Uint8Array; eof: boolean }> {
    const params = { handleId: this.#handleId, offset, len: length };
    const read = () => this.#session.call("fs/readBlock", params, { resend: "unsent" });
    return this.#withCallErrors("fs/readBlock", read, options?.signal, () => {
      checkArgument("read", "offset", offset, count);
      checkArgument("read", "length", length, count);
      checkCall("read", options);
    });
  }

  /** Writes at most 1 MiB at `offset`. */
  write(offset: number, data: InputData, options: CallOptions = {}): Promise<void> {
    const write = async () => {
      const params = { handleId: this.#handleId, offset, chunk: toInputBytes(data) };
      await this.#session.call("fs/writeBlock", params, { resend: "unsent" });
    };
    return this.#withCallErrors("fs/writeBlock", write, options?.signal, () => {
      checkArgument("write", "offset", offset, count);
      checkWrite(data, options);
    });
  }

  /**
   * Returns the SHA-256 of the first `length` bytes in hexadecimal, or null if the file is shorter. With `gmacKey`, the
   * AES-128-GMAC, which is faster.
   */
  async checksum(length: number, options: ChecksumOptions = {}): Promise<string | null> {
    const params = { handleId: this.#handleId, length, gmacKey: options?.gmacKey };
    const compute = () => this.#session.call("fs/checksum", params, { resend: "unsent" });
    const check = () => {
      checkArgument("checksum", "length", length, count);
      checkOptions("checksum", options, checksumOptions);
    };
    return (await this.#withCallErrors("fs/checksum", compute, options?.signal, check)).digest;
  }

  /** Checks that the partial file has the content that `whole` describes, renames it to `path` and closes it. */
  async commit(path: string, whole: CommitOptions, options: CallOptions = {}): Promise<void> {
    const commit = async () => {
      const params = { handleId: this.#handleId, path: toPathUri(path), ...whole };
      await this.#session.call("fs/commit", params, { resend: "unsent" });
    };
    await this.#withCallErrors("fs/commit", commit, options?.signal, () => {
      checkArgument("commit", "path", path, pathKind);
      checkOptions("commit", whole, commitOptions, "whole");
      checkCall("commit", options);
    });
    this.#isClosed = true;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // The server closes the files of a lost session.
    if (this.#session.isDisconnected) return;
    // Also valid on a new connection: closing an unknown file handle is not an error.
    await this.#withCallErrors("fs/close", () => this.#session.call("fs/close", { handleId: this.#handleId }));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #withCallErrors<T>(method: string, call: () => Promise<T>, signal?: AbortSignal, check?: () => void): Promise<T> {
    return withCallErrors({ method, path: this.path }, call, signal, check);
  }
}
