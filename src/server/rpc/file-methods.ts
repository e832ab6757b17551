import { posix } from "node:path";
import { ByteSemaphore } from "../../async/byte-semaphore.ts";
import { KeyedQueue } from "../../async/keyed-queue.ts";
import { isObject } from "../../base/type-guards.ts";
import type { FileSystem } from "../../files/file-system.ts";
import { type Base64Text, decodeBase64, InvalidBase64 } from "../../protocol/base64.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import { type MethodName, methods, type ParamsOf, type ResultOf } from "../../protocol/methods.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import type { SandboxedFileServers, SandboxedFileSystem } from "../host-services.ts";
import { CHUNKED_RESPONSE_BYTES, LISTING_RESPONSE_BYTES, STREAMED_RESPONSE_BYTES } from "../server-config.ts";
import type { ServerResources } from "../server-resources.ts";
import type { Session } from "../session/session.ts";
import type { CallContext, Handler, Handlers } from "./handler-types.ts";
import type { Peer } from "./peer.ts";

export type FileMethod = Extract<MethodName, `fs/${string}`>;

/** Maximum file size of `fs/readFile`. Its base64 still fits into a JavaScript string of nearly 512 Mi characters. */
const MAX_READ_FILE_BYTES = 400_000_000;

/** Maximum concurrent `fs/writeAtomic` calls per connection. More would only wait for Node's file threads. */
const MAX_CONCURRENT_ATOMIC_WRITES = 16;

/** Maximum concurrent `fs/readFile` calls per connection. Each has an open file; more would only wait to be sent. */
const MAX_CONCURRENT_READS = 16;

const CHANGES: ReadonlySet<FileMethod> = new Set([
  "fs/writeFile",
  "fs/createDirectory",
  "fs/remove",
  "fs/copy",
  "fs/writeAtomic",
  "fs/setAttributes",
]);
const LISTS: ReadonlySet<FileMethod> = new Set(["fs/readDirectory", "fs/walk", "fs/scan"]);
/** The response of an inner server exists as a line, as text, as bytes and as the response to the client. */
const COPIES_OF_INNER_RESPONSE = 4;

/** Returns the file methods of a connection. The first call opens its files. */
export function lazyFileMethods(open: () => Promise<ConnectionFiles>): Handlers<FileMethod> {
  const lazy = <M extends FileMethod>(method: M): Handler<M> => {
    return async (params, context) => {
      const data: unknown = "dataBase64" in params ? params.dataBase64 : undefined;
      if (data instanceof InvalidBase64) decodeFileData(data);
      const files = await open();
      const sandbox = "sandbox" in params && !isUnrestricted(params.sandbox) ? params.sandbox : undefined;
      if (files.roots) return files.inRoots(files.roots, method, params, sandbox, context);
      if (sandbox !== undefined) return files.inSandbox(method, params, sandbox, context);
      return files.methods[method](params, context);
    };
  };
  const names = Object.keys(methods).filter((name): name is FileMethod => name.startsWith("fs/"));
  // The table contains every name, each with the handler of its method.
  return Object.fromEntries(names.map((name) => [name, lazy(name)])) as unknown as Handlers<FileMethod>;
}

export interface ConnectionFilesDeps {
  files: FileSystem;
  peer: Peer;
  /** File changes that began on a lost connection keep their order on the session's next one. */
  session: Session;
  sandboxed: SandboxedFileServers | undefined;
  resources: ServerResources;
  /** Id of the principal whose quotas count file handles and watched paths. */
  ownerId: string;
  /** Directories that the token of the connection grants. Null: all. */
  roots: readonly string[] | null;
}

/** The `fs/*` methods of one connection. Changes run in order, and so do the blocks of one file handle. */
export class ConnectionFiles {
  readonly #files: FileSystem;
  readonly #handles: ReturnType<FileSystem["openHandles"]>;
  readonly #watches: ReturnType<FileSystem["openWatches"]>;
  readonly #sandboxed: SandboxedFileServers | undefined;
  readonly #scope: object;
  readonly #changes: KeyedQueue<"changes">;
  readonly #blocks = new KeyedQueue<string>();
  readonly #atomicWrites = new ByteSemaphore(MAX_CONCURRENT_ATOMIC_WRITES);
  readonly #reads = new ByteSemaphore(MAX_CONCURRENT_READS);
  /** Files that are open inside the roots, by handle id. */
  readonly #openInRoots = new Map<string, SandboxedFileSystem>();
  readonly roots: readonly string[] | null;

  constructor({ files, peer, session, sandboxed, resources, ownerId, roots }: ConnectionFilesDeps) {
    this.roots = roots;
    this.#files = files;
    this.#sandboxed = sandboxed;
    this.#scope = session;
    this.#changes = session.fileChanges;
    this.#handles = files.openHandles(() => resources.fileHandles.acquire(ownerId));
    this.#watches = files.openWatches(
      (watchId) => peer.notify({ method: "fs/missingChanged", params: { watchId } }),
      (paths) => resources.watchedPaths.acquire(ownerId, paths),
    );
  }

  readonly methods: Handlers<FileMethod> = {
    "fs/readFile": async (params, { afterResponse, streamFile, reserveResponseBytes, disconnected }) => {
      // Until the response is sent, because a streamed file stays open until then.
      afterResponse(await this.#reads.acquire(1, disconnected));
      const file = await this.#files.openFile(params);
      if (streamFile && file.size > CHUNKED_RESPONSE_BYTES) {
        streamFile(file);
        requireOneResponse(file.size);
        await reserveResponseBytes(STREAMED_RESPONSE_BYTES);
        return { dataBase64: new Uint8Array(0) };
      }
      try {
        await reserveResponseBytes(file.size);
        const dataBase64 = await file.readAll();
        requireOneResponse(dataBase64.length);
        return { dataBase64 };
      } finally {
        await file.close();
      }
    },
    "fs/writeFile": async ({ dataBase64, ...params }) => {
      const data = decodeFileData(dataBase64);
      return this.#enqueueChange(() => this.#files.writeFile({ ...params, data }));
    },
    "fs/createDirectory": async (params) => this.#enqueueChange(() => this.#files.createDirectory(params)),
    "fs/getMetadata": async (params) => this.#files.getMetadata(params),
    "fs/canonicalize": async (params) => this.#files.canonicalize(params),
    "fs/readDirectory": async (params, { reserveResponseBytes }) => {
      await reserveResponseBytes(LISTING_RESPONSE_BYTES);
      return this.#files.readDirectory(params);
    },
    "fs/walk": async (params, { reserveResponseBytes }) => {
      await reserveResponseBytes(LISTING_RESPONSE_BYTES);
      return this.#files.walk(params);
    },
    "fs/remove": async (params) => this.#enqueueChange(() => this.#files.remove(params)),
    "fs/copy": async (params) => this.#enqueueChange(() => this.#files.copy(params)),
    "fs/open": async (params) => this.#blocks.run(params.handleId, () => this.#handles.open(params)),
    "fs/readBlock": (params, { reserveResponseBytes }) =>
      this.#blocks.run(params.handleId, () => this.#handles.readBlock(params, reserveResponseBytes)),
    "fs/writeBlock": (params) => this.#enqueueBlock(params.handleId, () => this.#handles.writeBlock(params)),
    "fs/close": (params) => this.#enqueueBlock(params.handleId, () => this.#handles.closeHandle(params)),
    "fs/watchMissing": async (params) => this.#watches.watchMissing(params),
    "fs/scan": async (params, { reserveResponseBytes }) => {
      await reserveResponseBytes(LISTING_RESPONSE_BYTES);
      return this.#files.scan(params);
    },
    // Each call is atomic, so they run concurrently: copying a tree of small files makes thousands of them.
    "fs/writeAtomic": async (params, { disconnected }) => {
      const leave = await this.#atomicWrites.acquire(1, disconnected);
      try {
        await this.#files.writeAtomic(params);
        return {};
      } finally {
        leave();
      }
    },
    "fs/setAttributes": async (params) => this.#enqueueChange(() => this.#files.setAttributes(params)),
    "fs/openPartial": (params) => this.#blocks.run(params.handleId, () => this.#handles.openPartial(params)),
    "fs/checksum": (params) => this.#blocks.run(params.handleId, () => this.#handles.checksum(params)),
    "fs/commit": (params) => this.#enqueueBlock(params.handleId, () => this.#handles.commit(params)),
  };

  /** Executes a method inside the requested sandbox. Throws if the sandbox cannot be enforced. */
  async inSandbox<M extends FileMethod>(
    method: M,
    params: ParamsOf<M>,
    sandbox: unknown,
    context: CallContext,
  ): Promise<ResultOf<M>> {
    // Handles and watches would have to outlive the request inside the sandbox. No client requests that.
    if (!this.#sandboxed || "handleId" in params || method === "fs/watchMissing")
      throw invalidParams("sandbox intent cannot be enforced on this executor");
    const sandboxed = this.#sandboxed;
    const call = async () => {
      const inside = await sandboxed.forSandbox(sandbox, this.#scope);
      return this.#callInside(inside, method, params, context);
    };
    return CHANGES.has(method) ? this.#changes.run("changes", call) : call();
  }

  /** Executes a method inside the roots of the token. The kernel denies every other path, also behind a symbolic link. */
  async inRoots<M extends FileMethod>(
    roots: readonly string[],
    method: M,
    params: ParamsOf<M>,
    sandbox: unknown,
    context: CallContext,
  ): Promise<ResultOf<M>> {
    if (sandbox !== undefined && sandbox !== null)
      throw invalidParams("sandbox cannot be combined with the roots of the token; omit it");
    for (const path of pathsOf(params)) requireWithin(path, roots);
    if (!this.#sandboxed)
      throw invalidRequest(`${method} is not allowed: this server cannot enforce the roots of the token`);
    const sandboxed = this.#sandboxed;
    const handleId = "handleId" in params ? params.handleId : undefined;
    const call = async () => {
      const opened = handleId === undefined ? undefined : this.#openInRoots.get(handleId);
      const inside = opened ?? (await sandboxed.forRoots(roots, this.#scope));
      const result = await this.#callInside(inside, method, params, context);
      if (handleId !== undefined && OPENS.has(method)) this.#openInRoots.set(handleId, inside);
      if (handleId !== undefined && CLOSES.has(method)) this.#openInRoots.delete(handleId);
      return result;
    };
    if (handleId !== undefined) return this.#blocks.run(handleId, call);
    return CHANGES.has(method) ? this.#changes.run("changes", call) : call();
  }

  /** Executes a method in an inner server, once there is memory for its response. */
  async #callInside<M extends FileMethod>(
    inside: SandboxedFileSystem,
    method: M,
    params: ParamsOf<M>,
    { afterResponse, reserveResponseBytes, disconnected }: CallContext,
  ): Promise<ResultOf<M>> {
    if (method === "fs/readFile" && "path" in params) {
      afterResponse(await this.#reads.acquire(1, disconnected));
      // Without metadata the read fails too, and reports the cause.
      const metadata = await inside.call("fs/getMetadata", { path: params.path }).catch(() => null);
      await reserveResponseBytes((metadata?.size ?? 0) * COPIES_OF_INNER_RESPONSE);
    } else if (LISTS.has(method)) await reserveResponseBytes(LISTING_RESPONSE_BYTES);
    else if ("len" in params) await reserveResponseBytes(params.len);
    return inside.call(method, { ...params, sandbox: undefined });
  }

  async close(): Promise<void> {
    this.#watches.close();
    const opened = [...this.#openInRoots];
    this.#openInRoots.clear();
    for (const [handleId, inside] of opened) await inside.call("fs/close", { handleId }).catch(() => undefined);
    await this.#handles.close();
  }

  async #enqueueBlock(handleId: string, task: () => Promise<unknown>): Promise<Record<string, never>> {
    await this.#blocks.run(handleId, task);
    return {};
  }

  async #enqueueChange(task: () => Promise<void>): Promise<Record<string, never>> {
    await this.#changes.run("changes", task);
    return {};
  }
}

function requireOneResponse(bytes: number): void {
  if (bytes <= MAX_READ_FILE_BYTES) return;
  throw invalidRequest(
    `file is too large to read in one response: limit is ${MAX_READ_FILE_BYTES} bytes; read it in blocks with fs/open and fs/readBlock`,
  );
}

function decodeFileData(dataBase64: Base64Text): Uint8Array {
  const decoded = decodeBase64(dataBase64);
  if (!decoded.ok) throw invalidRequest(`fs/writeFile requires valid base64 dataBase64: ${decoded.problem}`);
  return decoded.bytes;
}

const OPENS: ReadonlySet<FileMethod> = new Set(["fs/open", "fs/openPartial"]);
const CLOSES: ReadonlySet<FileMethod> = new Set(["fs/close", "fs/commit"]);

/** Returns the paths of a file request. */
function pathsOf(params: ParamsOf<FileMethod>): string[] {
  const named = [
    "path" in params ? params.path : undefined,
    "sourcePath" in params ? params.sourcePath : undefined,
    "destinationPath" in params ? params.destinationPath : undefined,
  ];
  return named.filter((path) => path !== undefined).map(pathFromUri);
}

/** Throws an error that names the roots. The kernel decides about links; this check only explains. */
function requireWithin(path: string, roots: readonly string[]): void {
  const normal = posix.normalize(path);
  if (roots.some((root) => root === "/" || normal === root || normal.startsWith(`${root}/`))) return;
  throw invalidRequest(`path \`${path}\` is outside the roots of the token: ${roots.join(", ")}`);
}

/** Reports whether a sandbox request has no restrictions. */
export function isUnrestricted(sandbox: unknown): boolean {
  return isObject(sandbox) && isObject(sandbox.permissions) && sandbox.permissions.type === "disabled";
}
