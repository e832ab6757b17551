import type { Clock } from "../async/clock.ts";
import { asked } from "../exec/call-error.ts";
import type { CallOptions } from "../exec/exec-process.ts";
import { encodeBase64 } from "../protocol/base64.ts";
import { ErrorCode } from "../protocol/errors.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../protocol/methods.ts";
import type { Link, LinkCallOptions } from "./link.ts";
import { MissingPaths } from "./missing-paths.ts";
import { RemoteFile } from "./remote-file.ts";
import { explainedCall } from "./unsupported.ts";
import { likeAsked, toPathUri } from "./wire-path.ts";

/** A larger file is sent in blocks: one message must stay below the frame limit of every server (16 MiB). */
const MAX_WHOLE_FILE_BYTES = 8 * 1024 * 1024;
/** The protocol's largest block. */
const BLOCK_BYTES = 1024 * 1024;

export type FileMetadata = ResultOf<"fs/getMetadata">;
export type DirectoryEntry = ResultOf<"fs/readDirectory">["entries"][number];
export type WalkOptions = Partial<ParamsOf<"fs/walk">["options"]> & CallOptions;
export type WalkResult = ResultOf<"fs/walk">;

export interface CreateDirectoryOptions extends CallOptions {
  recursive?: boolean | undefined;
}

export interface MetadataOptions extends CallOptions {
  followSymlinks?: boolean | undefined;
}

export interface RemoveOptions extends CallOptions {
  recursive?: boolean | undefined;
  force?: boolean | undefined;
}

export interface CopyOptions extends CallOptions {
  recursive?: boolean | undefined;
}

/** The protocol's own limits, which a walk has when it is given none. */
const WALK_LIMITS = {
  maxDepth: 64,
  maxDirectories: 10_000,
  maxEntries: 50_000,
  followDirectorySymlinks: false,
};

/**
 * The files of the host that a client is connected to. Paths are native absolute paths or `file:` URIs; what comes back
 * is in the form that was asked in.
 *
 * @example
 * await client.files.writeFile("/tmp/hello.sh", "echo hello\n");
 * const text = await client.files.readText("/tmp/hello.sh");
 */
export class RemoteFiles {
  readonly #link: () => Link;
  readonly #newId: () => string;
  readonly #missing: MissingPaths;

  /** @internal */
  constructor(link: () => Link, newId: () => string, clock: Clock) {
    this.#link = link;
    this.#newId = newId;
    this.#missing = new MissingPaths({
      exists: (path) => this.exists(path),
      watch: async (params, signal) => (await this.#call("fs/watchMissing", params, { signal })).watching,
      clock,
    });
  }

  async readFile(path: string, options?: CallOptions): Promise<Uint8Array> {
    const read = (uri: string) => this.#call("fs/readFile", { path: uri });
    return (await this.#asked("fs/readFile", path, read, options)).dataBase64;
  }

  async readText(path: string, options?: CallOptions): Promise<string> {
    return new TextDecoder().decode(await this.readFile(path, options));
  }

  /** Creates or replaces the file; its directory must exist. */
  writeFile(path: string, data: Uint8Array | string, options?: CallOptions): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    return this.#asked("fs/writeFile", path, (uri) => this.#write(uri, bytes, options?.signal), options);
  }

  createDirectory(path: string, { signal, ...how }: CreateDirectoryOptions = {}): Promise<void> {
    const create = async (uri: string) =>
      void (await this.#call("fs/createDirectory", { path: uri, ...how }));
    return this.#asked("fs/createDirectory", path, create, { signal });
  }

  getMetadata(path: string, { signal, ...how }: MetadataOptions = {}): Promise<FileMetadata> {
    const get = (uri: string) => this.#call("fs/getMetadata", { path: uri, ...how });
    return this.#asked("fs/getMetadata", path, get, { signal });
  }

  async exists(path: string, options?: CallOptions): Promise<boolean> {
    try {
      await this.getMetadata(path, options);
      return true;
    } catch (error) {
      if (error instanceof ExecServerError && error.rpcCode === ErrorCode.notFound) return false;
      throw error;
    }
  }

  /** The real path behind links and dots. */
  async canonicalize(path: string, options?: CallOptions): Promise<string> {
    const canonicalize = (uri: string) => this.#call("fs/canonicalize", { path: uri });
    return likeAsked(path, (await this.#asked("fs/canonicalize", path, canonicalize, options)).path);
  }

  async readDirectory(path: string, options?: CallOptions): Promise<DirectoryEntry[]> {
    const read = (uri: string) => this.#call("fs/readDirectory", { path: uri });
    return (await this.#asked("fs/readDirectory", path, read, options)).entries;
  }

  /** Lists a tree, breadth first; `truncated` tells when a limit cut it short. */
  async walk(path: string, { signal, ...limits }: WalkOptions = {}): Promise<WalkResult> {
    const walk = (uri: string) =>
      this.#call("fs/walk", { path: uri, options: { ...WALK_LIMITS, ...limits } });
    const result = await this.#asked("fs/walk", path, walk, { signal });
    const asAsked = <T extends { path: string }>(entry: T): T => ({
      ...entry,
      path: likeAsked(path, entry.path),
    });
    return { ...result, entries: result.entries.map(asAsked), errors: result.errors.map(asAsked) };
  }

  /** Removes a file or a tree; a missing one is no error unless `force` is false. */
  remove(path: string, { signal, ...how }: RemoveOptions = {}): Promise<void> {
    const remove = async (uri: string) => void (await this.#call("fs/remove", { path: uri, ...how }));
    return this.#asked("fs/remove", path, remove, { signal });
  }

  /** An error names the source as its path. */
  copy(from: string, to: string, { signal, recursive = false }: CopyOptions = {}): Promise<void> {
    const copy = async (sourcePath: string) => {
      await this.#call("fs/copy", { sourcePath, destinationPath: toPathUri(to), recursive });
    };
    return this.#asked("fs/copy", from, copy, { signal });
  }

  /** Opens a file to be read or replaced in blocks. It ends with its connection: a lost one is not recovered. */
  open(path: string, mode: "read" | "replace" = "read", options?: CallOptions): Promise<RemoteFile> {
    return this.#asked("fs/open", path, (uri) => this.#open(uri, path, mode), options);
  }

  /** Resolves when one of the paths exists, also below directories that do not exist yet. */
  waitForPath(paths: string | string[], { signal }: CallOptions = {}): Promise<void> {
    const all = typeof paths === "string" ? [paths] : paths;
    const appear = async () => {
      await this.#missing.appear(
        all.map((path) => toPathUri(path)),
        signal,
      );
    };
    return asked({ method: "fs/watchMissing", path: all[0] }, appear, signal);
  }

  /** @internal */
  notified(notification: ServerNotification): void {
    if (notification.method === "fs/missingChanged") this.#missing.wakeAll();
  }

  /**
   * Watches end with their connection: each waiter looks for itself and watches anew.
   *
   * @internal
   */
  resumed(): void {
    this.#missing.wakeAll();
  }

  /** @internal */
  failed(): void {
    this.resumed();
  }

  /** A call of a user, who is told the path as it was given. */
  #asked<T>(
    method: MethodName,
    path: string,
    call: (uri: string) => Promise<T>,
    { signal }: CallOptions = {},
  ): Promise<T> {
    return asked({ method, path }, async () => call(toPathUri(path)), signal);
  }

  async #write(uri: string, bytes: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    if (bytes.length > MAX_WHOLE_FILE_BYTES) await this.#writeInBlocks(uri, bytes, signal);
    else await this.#call("fs/writeFile", { path: uri, dataBase64: encodeBase64(bytes) });
  }

  async #writeInBlocks(uri: string, bytes: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    await using file = await this.#open(uri, uri, "replace");
    for (let at = 0; at < bytes.length; at += BLOCK_BYTES)
      await file.write(at, bytes.subarray(at, at + BLOCK_BYTES), { signal });
  }

  async #open(uri: string, path: string, mode: "read" | "replace"): Promise<RemoteFile> {
    const handleId = this.#newId().replaceAll("-", "").slice(0, 32);
    await this.#call("fs/open", { handleId, path: uri, mode }, { resend: "unsent" });
    return new RemoteFile(this.#link, handleId, path);
  }

  #call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: LinkCallOptions<M>,
  ): Promise<ResultOf<M>> {
    return explainedCall(this.#link(), method, params, options);
  }
}
