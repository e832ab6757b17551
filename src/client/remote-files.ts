import type { Clock } from "../async/clock.ts";
import { encodeBase64 } from "../protocol/base64.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../protocol/methods.ts";
import type { Link, LinkCallOptions } from "./link.ts";
import { MissingPaths } from "./missing-paths.ts";
import { RemoteFile } from "./remote-file.ts";
import { explainUnknownMethod } from "./unsupported.ts";
import { likeAsked, toPathUri } from "./wire-path.ts";

/** A larger file is sent in blocks: one message must stay below the frame limit of every server (16 MiB). */
const MAX_WHOLE_FILE_BYTES = 8 * 1024 * 1024;
/** The protocol's largest block. */
const BLOCK_BYTES = 1024 * 1024;

export type FileMetadata = ResultOf<"fs/getMetadata">;
export type DirectoryEntry = ResultOf<"fs/readDirectory">["entries"][number];
export type WalkOptions = Partial<ParamsOf<"fs/walk">["options"]>;
export type WalkResult = ResultOf<"fs/walk">;

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

  constructor(link: () => Link, newId: () => string, clock: Clock) {
    this.#link = link;
    this.#newId = newId;
    this.#missing = new MissingPaths({
      exists: (path) => this.exists(path),
      watch: async (params, signal) => (await this.#call("fs/watchMissing", params, { signal })).watching,
      clock,
    });
  }

  async readFile(path: string): Promise<Uint8Array> {
    return (await this.#call("fs/readFile", { path: toPathUri(path) })).dataBase64;
  }

  async readText(path: string): Promise<string> {
    return new TextDecoder().decode(await this.readFile(path));
  }

  /** Creates or replaces the file; its directory must exist. */
  async writeFile(path: string, data: Uint8Array | string): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    if (bytes.length > MAX_WHOLE_FILE_BYTES) return this.#writeInBlocks(path, bytes);
    await this.#call("fs/writeFile", { path: toPathUri(path), dataBase64: encodeBase64(bytes) });
  }

  async createDirectory(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#call("fs/createDirectory", { path: toPathUri(path), ...options });
  }

  async getMetadata(path: string, options: { followSymlinks?: boolean } = {}): Promise<FileMetadata> {
    return this.#call("fs/getMetadata", { path: toPathUri(path), ...options });
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.getMetadata(path);
      return true;
    } catch (error) {
      if (error instanceof RequestError && error.code === ErrorCode.notFound) return false;
      throw error;
    }
  }

  /** The real path behind links and dots. */
  async canonicalize(path: string): Promise<string> {
    return likeAsked(path, (await this.#call("fs/canonicalize", { path: toPathUri(path) })).path);
  }

  async readDirectory(path: string): Promise<DirectoryEntry[]> {
    return (await this.#call("fs/readDirectory", { path: toPathUri(path) })).entries;
  }

  /** Lists a tree, breadth first; `truncated` tells when a limit cut it short. */
  async walk(path: string, options: WalkOptions = {}): Promise<WalkResult> {
    const result = await this.#call("fs/walk", {
      path: toPathUri(path),
      options: { ...WALK_LIMITS, ...options },
    });
    const asAsked = <T extends { path: string }>(entry: T): T => ({
      ...entry,
      path: likeAsked(path, entry.path),
    });
    return { ...result, entries: result.entries.map(asAsked), errors: result.errors.map(asAsked) };
  }

  /** Removes a file or a tree; a missing one is no error unless `force` is false. */
  async remove(path: string, options: { recursive?: boolean; force?: boolean } = {}): Promise<void> {
    await this.#call("fs/remove", { path: toPathUri(path), ...options });
  }

  async copy(from: string, to: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#call("fs/copy", {
      sourcePath: toPathUri(from),
      destinationPath: toPathUri(to),
      recursive: options.recursive ?? false,
    });
  }

  /** Opens a file to be read or replaced in blocks. It ends with its connection: a lost one is not recovered. */
  async open(path: string, mode: "read" | "replace" = "read"): Promise<RemoteFile> {
    const handleId = this.#newId().replaceAll("-", "").slice(0, 32);
    await this.#call("fs/open", { handleId, path: toPathUri(path), mode }, { resend: "unsent" });
    return new RemoteFile(this.#link, handleId);
  }

  /** Resolves when one of the paths exists, also below directories that do not exist yet. */
  async waitForPath(paths: string | string[], options: { signal?: AbortSignal } = {}): Promise<void> {
    const missing = (typeof paths === "string" ? [paths] : paths).map((path) => toPathUri(path));
    await this.#missing.appear(missing, options.signal);
  }

  notified(notification: ServerNotification): void {
    if (notification.method === "fs/missingChanged") this.#missing.wakeAll();
  }

  /** Watches end with their connection: whoever waits looks for itself and watches anew. */
  resumed(): void {
    this.#missing.wakeAll();
  }

  failed(): void {
    this.resumed();
  }

  async #writeInBlocks(path: string, bytes: Uint8Array): Promise<void> {
    await using file = await this.open(path, "replace");
    for (let at = 0; at < bytes.length; at += BLOCK_BYTES)
      await file.write(at, bytes.subarray(at, at + BLOCK_BYTES));
  }

  async #call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: LinkCallOptions<M>,
  ): Promise<ResultOf<M>> {
    try {
      return await this.#link().call(method, params, options);
    } catch (error) {
      throw explainUnknownMethod(method, error);
    }
  }
}
