import type { Clock } from "../../async/clock.ts";
import { asked } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { encodeBase64 } from "../../protocol/base64.ts";
import { ErrorCode } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../../protocol/methods.ts";
import type { Link, LinkCallOptions } from "../session/reconnecting-session.ts";
import { explainedCall } from "../unsupported.ts";
import { likeAsked, toPathUri } from "../wire-path.ts";
import { MissingPaths } from "./path-appearance.ts";
import { RemoteFile } from "./remote-file.ts";

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

export interface ScanOptions extends CallOptions {
  /** Default false: links are told as links. */
  followLinks?: boolean | undefined;
}

export type ScannedEntry = ResultOf<"fs/scan">["self"];
/** What a path is, and what is in it when it is a directory. */
export interface Scan {
  self: ScannedEntry;
  entries: ScannedEntry[];
}

/** A file's bytes, or where a link leads: percent-encoded as in a path URI. */
export type PutContent = { chunk: Uint8Array } | { target: string };

export interface AttributeOptions extends CallOptions {
  /** The permission bits. */
  mode?: number | undefined;
  modifiedAtMs?: number | undefined;
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

  /**
   * What a path is, links followed, and what a directory holds: with sizes, modes, times and links. A large directory is
   * asked for page by page.
   */
  async scan(path: string, { signal, followLinks }: ScanOptions = {}): Promise<Scan> {
    const scanFrom = (after: string | undefined) =>
      this.#asked("fs/scan", path, (uri) => this.#call("fs/scan", { path: uri, after, followLinks }), {
        signal,
      });
    const { self, entries, more } = await scanFrom(undefined);
    for (let isMore = more; isMore; ) {
      const page = await scanFrom(entries.at(-1)?.name);
      entries.push(...page.entries);
      isMore = page.more && page.entries.length > 0;
    }
    return { self, entries };
  }

  /** Creates or replaces a file or a symbolic link in one step: nobody ever sees half of it. */
  put(path: string, content: PutContent, { signal, ...attributes }: AttributeOptions = {}): Promise<void> {
    const put = async (uri: string) =>
      void (await this.#call("fs/put", { path: uri, ...content, ...attributes }));
    return this.#asked("fs/put", path, put, { signal });
  }

  /** Sets the permission bits and the time of the last change. */
  setAttributes(path: string, { signal, ...attributes }: AttributeOptions): Promise<void> {
    const set = async (uri: string) =>
      void (await this.#call("fs/setAttributes", { path: uri, ...attributes }));
    return this.#asked("fs/setAttributes", path, set, { signal });
  }

  /** Opens a file that is being copied, as an earlier copy left it, or a new one. It ends with its connection, the file stays. */
  async openPart(path: string, options?: CallOptions): Promise<{ file: RemoteFile; size: number }> {
    const handleId = this.#newHandleId();
    const open = (uri: string) => this.#call("fs/openPart", { handleId, path: uri }, { resend: "unsent" });
    const { size } = await this.#asked("fs/openPart", path, open, options);
    return { file: new RemoteFile(this.#link, handleId, path), size };
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

  /** A call whose errors name the path as the user gave it. */
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
    const handleId = this.#newHandleId();
    await this.#call("fs/open", { handleId, path: uri, mode }, { resend: "unsent" });
    return new RemoteFile(this.#link, handleId, path);
  }

  #newHandleId(): string {
    return this.#newId().replaceAll("-", "").slice(0, 32);
  }

  #call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: LinkCallOptions<M>,
  ): Promise<ResultOf<M>> {
    return explainedCall(this.#link(), method, params, options);
  }
}
