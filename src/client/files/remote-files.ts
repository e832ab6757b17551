import type { Clock } from "../../async/clock.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { checkInputData, type InputData, toInputBytes } from "../../exec/options/input-bytes.ts";
import { checkArgument, checkOptions, type OptionKind } from "../../exec/options/option-schema.ts";
import { checkCall } from "../../exec/options/process-checks.ts";
import { callOptions } from "../../exec/options/process-options.ts";
import { encodeBase64 } from "../../protocol/base64.ts";
import { type DisconnectedError, ErrorCode } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { MAX_BLOCK_BYTES } from "../../protocol/file-schemas.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../../protocol/methods.ts";
import * as schemas from "../client-options.ts";
import { checkBelow, checkEntryName, entryNormalizer, inCallerForm, toPathUri } from "../rpc/path-conversion.ts";
import { callInAnySession, callOrExplain } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession, SessionCallOptions } from "../session/reconnecting-session.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";
import { PathAppearance } from "./path-appearance.ts";
import { RemoteFile } from "./remote-file.ts";

/** Maximum file size for one message, which must stay below the frame limit of every server (16 MiB). */
const MAX_WHOLE_FILE_BYTES = 8 * 1024 * 1024;

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
  readonly #sessions: ReopeningSession;
  readonly #newId: () => string;
  readonly #appearance: PathAppearance;

  /** @internal */
  constructor(sessions: ReopeningSession, newId: () => string, clock: Clock) {
    this.#sessions = sessions;
    this.#newId = newId;
    this.#appearance = new PathAppearance({
      exists: (path) => this.exists(path),
      watch: async (params, signal) => (await this.#call("fs/watchMissing", params, { signal })).watching,
      clock,
    });
  }

  async readFile(path: string, options?: CallOptions): Promise<Uint8Array> {
    const read = (uri: string) => this.#call("fs/readFile", { path: uri }, options);
    return (await this.#withCallErrors("fs/readFile", path, read, options)).dataBase64;
  }

  async readText(path: string, options?: CallOptions): Promise<string> {
    return new TextDecoder().decode(await this.readFile(path, options));
  }

  /** Creates or replaces the file; its directory must exist. */
  writeFile(path: string, data: InputData, options?: CallOptions): Promise<void> {
    const write = (uri: string) => {
      checkInputData("writeFile", "data", data);
      return this.#write(uri, toInputBytes(data), options?.signal);
    };
    return this.#withCallErrors("fs/writeFile", path, write, options);
  }

  createDirectory(path: string, options: CreateDirectoryOptions = {}): Promise<void> {
    const create = async (uri: string) =>
      void (await this.#call(
        "fs/createDirectory",
        { path: uri, ...withoutSignal(options) },
        { signal: options.signal },
      ));
    return this.#withCallErrors("fs/createDirectory", path, create, options, schemas.createDirectoryOptions);
  }

  getMetadata(path: string, options: MetadataOptions = {}): Promise<FileMetadata> {
    const get = (uri: string) =>
      this.#call("fs/getMetadata", { path: uri, ...withoutSignal(options) }, { signal: options.signal });
    return this.#withCallErrors("fs/getMetadata", path, get, options, schemas.followOptions);
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
    const canonicalize = (uri: string) => this.#call("fs/canonicalize", { path: uri }, options);
    return inCallerForm(path, (await this.#withCallErrors("fs/canonicalize", path, canonicalize, options)).path);
  }

  async readDirectory(path: string, options?: CallOptions): Promise<DirectoryEntry[]> {
    const read = async (uri: string) => {
      const { entries } = await this.#call("fs/readDirectory", { path: uri }, options);
      for (const { fileName } of entries) checkEntryName(fileName, path);
      return entries;
    };
    return this.#withCallErrors("fs/readDirectory", path, read, options);
  }

  /** Lists a tree, breadth first; `truncated` is true if a limit was reached. */
  async walk(path: string, options: WalkOptions = {}): Promise<WalkResult> {
    const walk = async (uri: string) => {
      const limits = { ...WALK_LIMITS, ...withoutSignal(options) };
      const walked = await this.#call("fs/walk", { path: uri, options: limits }, { signal: options.signal });
      for (const { path: found } of walked.entries) checkBelow(uri, found);
      return walked;
    };
    const result = await this.#withCallErrors("fs/walk", path, walk, options, schemas.walkOptions);
    const toCallerForm = <T extends { path: string }>(entry: T): T => ({
      ...entry,
      path: inCallerForm(path, entry.path),
    });
    return { ...result, entries: result.entries.map(toCallerForm), errors: result.errors.map(toCallerForm) };
  }

  /** Removes a file or a tree. A missing path is an error only if `force` is false. */
  remove(path: string, options: RemoveOptions = {}): Promise<void> {
    const remove = async (uri: string) =>
      void (await this.#call("fs/remove", { path: uri, ...withoutSignal(options) }, { signal: options.signal }));
    return this.#withCallErrors("fs/remove", path, remove, options, schemas.removeOptions);
  }

  /** Copies on the server's host. Errors have the source as their path. */
  copy(from: string, to: string, options: CopyOptions = {}): Promise<void> {
    const copy = async (sourcePath: string) => {
      const { recursive = false, signal } = options;
      await this.#call("fs/copy", { sourcePath, destinationPath: toPathUri(to), recursive }, { signal });
    };
    return this.#withCallErrors("fs/copy", from, copy, options, schemas.copyOptions, () =>
      checkArgument("copy", "to", to, schemas.pathKind),
    );
  }

  /** Opens a file to read or replace it in blocks. It is closed when its connection is lost. */
  open(path: string, mode: "read" | "replace" = "read", options?: CallOptions): Promise<RemoteFile> {
    const open = (uri: string) => this.#open(uri, path, mode, options?.signal);
    return this.#withCallErrors("fs/open", path, open, options, callOptions, () =>
      checkArgument("open", "mode", mode, schemas.openModeKind),
    );
  }

  /**
   * Returns a path, with links followed, and the entries of a directory: sizes, modes, times and link targets. A
   * large directory is read page by page.
   */
  async scan(path: string, options: ScanOptions = {}): Promise<PathScan> {
    const entries: ScannedEntry[] = [];
    const normalizeName = entryNormalizer(path);
    const scanFrom = async (session: ReconnectingSession, uri: string, after: string | undefined) => {
      const params = { path: uri, after, ...withoutSignal(options) };
      const page = await callOrExplain(session, "fs/scan", params, { isMovable: after === undefined });
      for (const entry of page.entries) entries.push({ ...entry, name: normalizeName(entry.name) });
      return page;
    };
    const scanAll = async (session: ReconnectingSession, uri: string) => {
      let page = await scanFrom(session, uri, undefined);
      const { self } = page;
      while (page.more && page.entries.length > 0) page = await scanFrom(session, uri, page.entries.at(-1)?.name);
      return { self, entries };
    };
    const scan = (uri: string) => this.#sessions.run((session) => scanAll(session, uri), options.signal);
    return this.#withCallErrors("fs/scan", path, scan, options, schemas.scanOptions);
  }

  /** Creates or replaces a file or a symbolic link atomically. */
  writeAtomic(path: string, content: PutContent, options: AttributeOptions = {}): Promise<void> {
    const put = async (uri: string) =>
      void (await this.#call(
        "fs/writeAtomic",
        { path: uri, ...content, ...withoutSignal(options) },
        { signal: options.signal },
      ));
    return this.#withCallErrors("fs/writeAtomic", path, put, options, schemas.attributeOptions, () =>
      checkArgument("writeAtomic", "content", content, schemas.putContent),
    );
  }

  /** Sets the permission bits and the modification time. */
  setAttributes(path: string, options: AttributeOptions): Promise<void> {
    const set = async (uri: string) =>
      void (await this.#call("fs/setAttributes", { path: uri, ...withoutSignal(options) }, { signal: options.signal }));
    return this.#withCallErrors("fs/setAttributes", path, set, options, schemas.attributeOptions, () =>
      checkOptions("setAttributes", options, schemas.attributeOptions),
    );
  }

  /**
   * Opens the partial file of a copy, existing or new. The handle is closed when its connection is lost; the file
   * stays.
   */
  async openPartial(path: string, options: FollowOptions = {}): Promise<{ file: RemoteFile; size: number }> {
    const handleId = this.#newHandleId();
    const openIn = async (session: ReconnectingSession, uri: string) => {
      const params = { handleId, path: uri, ...withoutSignal(options) };
      const { size } = await callOrExplain(session, "fs/openPartial", params, { resend: "unsent", isMovable: true });
      return { file: new RemoteFile(session, handleId, path), size };
    };
    const open = (uri: string) => this.#sessions.run((session) => openIn(session, uri), options.signal);
    return this.#withCallErrors("fs/openPartial", path, open, options, schemas.followOptions);
  }

  /** Resolves when one of the paths exists, also below directories that do not exist yet. */
  waitForPath(paths: string | string[], options: CallOptions = {}): Promise<void> {
    const all = typeof paths === "string" ? [paths] : paths;
    const check = () => {
      checkArgument("waitForPath", "paths", paths, schemas.pathsKind);
      checkCall("waitForPath", options);
    };
    const signal = options?.signal;
    const waitForOne = async () => {
      await this.#appearance.waitFor(
        all.map((path) => toPathUri(path)),
        signal,
      );
    };
    return withCallErrors({ method: "fs/watchMissing", path: all?.[0] }, waitForOne, signal, check);
  }

  /** @internal */
  onNotification(notification: ServerNotification): void {
    if (notification.method === "fs/missingChanged") this.#appearance.wakeAll();
  }

  /**
   * Rejects the waits that the lost session had.
   *
   * @internal
   */
  onLost(error: DisconnectedError): void {
    this.#appearance.failAll(error);
  }

  /**
   * A watch ends with its connection, so each waiter checks its paths and sets the watch again.
   *
   * @internal
   */
  onConnectionChanged(): void {
    this.#appearance.wakeAll();
  }

  /** Makes a call whose errors contain the caller's path. Validates the path and the options first. */
  #withCallErrors<T>(
    method: `fs/${string}` & MethodName,
    path: string,
    call: (uri: string) => Promise<T>,
    options: CallOptions = {},
    schema: OptionKind = callOptions,
    checkMore: () => void = () => undefined,
  ): Promise<T> {
    const check = () => {
      const operation = method.slice("fs/".length);
      checkArgument(operation, "path", path, schemas.pathKind);
      checkOptions(operation, options, schema);
      checkMore();
    };
    const details = { method, path: typeof path === "string" ? path : undefined };
    return withCallErrors(details, async () => call(toPathUri(path)), options?.signal, check);
  }

  async #write(uri: string, bytes: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    if (bytes.length <= MAX_WHOLE_FILE_BYTES) {
      await this.#call("fs/writeFile", { path: uri, dataBase64: encodeBase64(bytes) }, { signal });
      return;
    }
    await using file = await this.#open(uri, uri, "replace", signal);
    for (let at = 0; at < bytes.length; at += MAX_BLOCK_BYTES)
      await file.write(at, bytes.subarray(at, at + MAX_BLOCK_BYTES), { signal });
  }

  #open(uri: string, path: string, mode: "read" | "replace", signal: AbortSignal | undefined): Promise<RemoteFile> {
    const handleId = this.#newHandleId();
    return this.#sessions.run(async (session) => {
      const params = { handleId, path: uri, mode };
      await callOrExplain(session, "fs/open", params, { resend: "unsent", isMovable: true });
      return new RemoteFile(session, handleId, path);
    }, signal);
  }

  #newHandleId(): string {
    return this.#newId().replaceAll("-", "").slice(0, 32);
  }

  #call<M extends MethodName>(method: M, params: ParamsOf<M>, options?: SessionCallOptions<M>): Promise<ResultOf<M>> {
    return callInAnySession(this.#sessions, method, params, options);
  }
}

function withoutSignal<T extends CallOptions>(options: T): Omit<T, "signal"> {
  const { signal, ...rest } = options;
  return rest;
}
