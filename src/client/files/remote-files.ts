import type { Clock } from "../../async/clock.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { encodeBase64 } from "../../protocol/base64.ts";
import { ErrorCode } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../../protocol/methods.ts";
import { checkBelow, checkEntryName, entryNormalizer, inCallerForm, toPathUri } from "../rpc/path-conversion.ts";
import { callOrExplain } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession, SessionCallOptions } from "../session/reconnecting-session.ts";
import { PathAppearance } from "./path-appearance.ts";
import { RemoteFile } from "./remote-file.ts";

/** Maximum file size for one message, which must stay below the frame limit of every server (16 MiB). */
const MAX_WHOLE_FILE_BYTES = 8 * 1024 * 1024;
/** Maximum block size of the protocol. */
const BLOCK_BYTES = 1024 * 1024;

export type FileMetadata = ResultOf<"fs/getMetadata">;
export type DirectoryEntry = ResultOf<"fs/readDirectory">["entries"][number];
export type WalkOptions = Partial<ParamsOf<"fs/walk">["options"]> & CallOptions;
export type WalkResult = ResultOf<"fs/walk">;

export interface FollowOptions extends CallOptions {
  /** Default true. False rejects symbolic links in parent directories, and never follows the last name. */
  followSymlinks?: boolean | undefined;
}

export interface CreateDirectoryOptions extends FollowOptions {
  recursive?: boolean | undefined;
}

export type MetadataOptions = FollowOptions;

export interface RemoveOptions extends FollowOptions {
  recursive?: boolean | undefined;
  force?: boolean | undefined;
}

export interface CopyOptions extends CallOptions {
  recursive?: boolean | undefined;
}

export interface ScanOptions extends FollowOptions {
  /** Default false: links are reported as links. */
  followLinks?: boolean | undefined;
}

export type ScannedEntry = ResultOf<"fs/scan">["self"];
/** A path and, for a directory, its entries. */
export interface PathScan {
  self: ScannedEntry;
  entries: ScannedEntry[];
}

/** Bytes of a file, or the target of a link, percent-encoded as in a path URI. */
export type PutContent = { chunk: Uint8Array } | { target: string };

export interface AttributeOptions extends FollowOptions {
  /** The permission bits. */
  mode?: number | undefined;
  modifiedAtMs?: number | undefined;
}

/** Default limits of a walk, as the protocol defines them. */
const WALK_LIMITS = {
  maxDepth: 64,
  maxDirectories: 10_000,
  maxEntries: 50_000,
  followDirectorySymlinks: false,
};

/**
 * Files of the host that a client is connected to. Paths are native absolute paths or `file:` URIs; returned paths have
 * the form that the caller used.
 *
 * @example
 * await client.files.writeFile("/tmp/hello.sh", "echo hello\n");
 * const text = await client.files.readText("/tmp/hello.sh");
 */
export class RemoteFiles {
  readonly #session: () => ReconnectingSession;
  readonly #newId: () => string;
  readonly #appearance: PathAppearance;

  /** @internal */
  constructor(session: () => ReconnectingSession, newId: () => string, clock: Clock) {
    this.#session = session;
    this.#newId = newId;
    this.#appearance = new PathAppearance({
      exists: (path) => this.exists(path),
      watch: async (params, signal) => (await this.#call("fs/watchMissing", params, { signal })).watching,
      clock,
    });
  }

  async readFile(path: string, options?: CallOptions): Promise<Uint8Array> {
    const read = (uri: string) => this.#call("fs/readFile", { path: uri });
    return (await this.#withCallErrors("fs/readFile", path, read, options)).dataBase64;
  }

  async readText(path: string, options?: CallOptions): Promise<string> {
    return new TextDecoder().decode(await this.readFile(path, options));
  }

  /** Creates or replaces the file; its directory must exist. */
  writeFile(path: string, data: Uint8Array | string, options?: CallOptions): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    return this.#withCallErrors("fs/writeFile", path, (uri) => this.#write(uri, bytes, options?.signal), options);
  }

  createDirectory(path: string, { signal, ...how }: CreateDirectoryOptions = {}): Promise<void> {
    const create = async (uri: string) => void (await this.#call("fs/createDirectory", { path: uri, ...how }));
    return this.#withCallErrors("fs/createDirectory", path, create, { signal });
  }

  getMetadata(path: string, { signal, ...how }: MetadataOptions = {}): Promise<FileMetadata> {
    const get = (uri: string) => this.#call("fs/getMetadata", { path: uri, ...how });
    return this.#withCallErrors("fs/getMetadata", path, get, { signal });
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

  /** Resolves symbolic links, `.` and `..`. */
  async canonicalize(path: string, options?: CallOptions): Promise<string> {
    const canonicalize = (uri: string) => this.#call("fs/canonicalize", { path: uri });
    return inCallerForm(path, (await this.#withCallErrors("fs/canonicalize", path, canonicalize, options)).path);
  }

  async readDirectory(path: string, options?: CallOptions): Promise<DirectoryEntry[]> {
    const read = async (uri: string) => {
      const { entries } = await this.#call("fs/readDirectory", { path: uri });
      for (const { fileName } of entries) checkEntryName(fileName, path);
      return entries;
    };
    return this.#withCallErrors("fs/readDirectory", path, read, options);
  }

  /** Lists a tree, breadth first; `truncated` is true if a limit was reached. */
  async walk(path: string, { signal, ...limits }: WalkOptions = {}): Promise<WalkResult> {
    const walk = async (uri: string) => {
      const walked = await this.#call("fs/walk", { path: uri, options: { ...WALK_LIMITS, ...limits } });
      for (const { path: found } of walked.entries) checkBelow(uri, found);
      return walked;
    };
    const result = await this.#withCallErrors("fs/walk", path, walk, { signal });
    const toCallerForm = <T extends { path: string }>(entry: T): T => ({
      ...entry,
      path: inCallerForm(path, entry.path),
    });
    return { ...result, entries: result.entries.map(toCallerForm), errors: result.errors.map(toCallerForm) };
  }

  /** Removes a file or a tree. A missing path is an error only if `force` is false. */
  remove(path: string, { signal, ...how }: RemoveOptions = {}): Promise<void> {
    const remove = async (uri: string) => void (await this.#call("fs/remove", { path: uri, ...how }));
    return this.#withCallErrors("fs/remove", path, remove, { signal });
  }

  /** Copies on the server's host. Errors have the source as their path. */
  copy(from: string, to: string, { signal, recursive = false }: CopyOptions = {}): Promise<void> {
    const copy = async (sourcePath: string) => {
      await this.#call("fs/copy", { sourcePath, destinationPath: toPathUri(to), recursive });
    };
    return this.#withCallErrors("fs/copy", from, copy, { signal });
  }

  /** Opens a file to read or replace it in blocks. It is closed when its connection is lost. */
  open(path: string, mode: "read" | "replace" = "read", options?: CallOptions): Promise<RemoteFile> {
    return this.#withCallErrors("fs/open", path, (uri) => this.#open(uri, path, mode), options);
  }

  /**
   * Returns a path, with links followed, and the entries of a directory: sizes, modes, times and link targets. A
   * large directory is read page by page.
   */
  async scan(path: string, { signal, ...how }: ScanOptions = {}): Promise<PathScan> {
    const entries: ScannedEntry[] = [];
    const normalizeName = entryNormalizer(path);
    const scanFrom = async (uri: string, after: string | undefined) => {
      const page = await this.#call("fs/scan", { path: uri, after, ...how });
      for (const entry of page.entries) entries.push({ ...entry, name: normalizeName(entry.name) });
      return page;
    };
    const scanAll = async (uri: string) => {
      let page = await scanFrom(uri, undefined);
      const { self } = page;
      while (page.more && page.entries.length > 0) page = await scanFrom(uri, page.entries.at(-1)?.name);
      return { self, entries };
    };
    return this.#withCallErrors("fs/scan", path, scanAll, { signal });
  }

  /** Creates or replaces a file or a symbolic link atomically. */
  writeAtomic(path: string, content: PutContent, { signal, ...attributes }: AttributeOptions = {}): Promise<void> {
    const put = async (uri: string) =>
      void (await this.#call("fs/writeAtomic", { path: uri, ...content, ...attributes }));
    return this.#withCallErrors("fs/writeAtomic", path, put, { signal });
  }

  /** Sets the permission bits and the modification time. */
  setAttributes(path: string, { signal, ...attributes }: AttributeOptions): Promise<void> {
    const set = async (uri: string) => void (await this.#call("fs/setAttributes", { path: uri, ...attributes }));
    return this.#withCallErrors("fs/setAttributes", path, set, { signal });
  }

  /**
   * Opens the partial file of a copy, existing or new. The handle is closed when its connection is lost; the file
   * stays.
   */
  async openPartial(path: string, { signal, ...how }: FollowOptions = {}): Promise<{ file: RemoteFile; size: number }> {
    const handleId = this.#newHandleId();
    const open = (uri: string) => this.#call("fs/openPartial", { handleId, path: uri, ...how }, { resend: "unsent" });
    const { size } = await this.#withCallErrors("fs/openPartial", path, open, { signal });
    return { file: new RemoteFile(this.#session, handleId, path), size };
  }

  /** Resolves when one of the paths exists, also below directories that do not exist yet. */
  waitForPath(paths: string | string[], { signal }: CallOptions = {}): Promise<void> {
    const all = typeof paths === "string" ? [paths] : paths;
    const waitForOne = async () => {
      await this.#appearance.waitFor(
        all.map((path) => toPathUri(path)),
        signal,
      );
    };
    return withCallErrors({ method: "fs/watchMissing", path: all[0] }, waitForOne, signal);
  }

  /** @internal */
  onNotification(notification: ServerNotification): void {
    if (notification.method === "fs/missingChanged") this.#appearance.wakeAll();
  }

  /**
   * A watch ends with its connection, so each waiter checks its paths and sets the watch again.
   *
   * @internal
   */
  onConnectionChanged(): void {
    this.#appearance.wakeAll();
  }

  /** Makes a call whose errors contain the caller's path. */
  #withCallErrors<T>(
    method: MethodName,
    path: string,
    call: (uri: string) => Promise<T>,
    { signal }: CallOptions = {},
  ): Promise<T> {
    return withCallErrors({ method, path }, async () => call(toPathUri(path)), signal);
  }

  async #write(uri: string, bytes: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    if (bytes.length <= MAX_WHOLE_FILE_BYTES) {
      await this.#call("fs/writeFile", { path: uri, dataBase64: encodeBase64(bytes) });
      return;
    }
    await using file = await this.#open(uri, uri, "replace");
    for (let at = 0; at < bytes.length; at += BLOCK_BYTES)
      await file.write(at, bytes.subarray(at, at + BLOCK_BYTES), { signal });
  }

  async #open(uri: string, path: string, mode: "read" | "replace"): Promise<RemoteFile> {
    const handleId = this.#newHandleId();
    await this.#call("fs/open", { handleId, path: uri, mode }, { resend: "unsent" });
    return new RemoteFile(this.#session, handleId, path);
  }

  #newHandleId(): string {
    return this.#newId().replaceAll("-", "").slice(0, 32);
  }

  #call<M extends MethodName>(method: M, params: ParamsOf<M>, options?: SessionCallOptions<M>): Promise<ResultOf<M>> {
    return callOrExplain(this.#session(), method, params, options);
  }
}
