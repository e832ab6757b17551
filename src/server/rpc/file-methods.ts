import { ByteTurns } from "../../async/byte-semaphore.ts";
import { Lanes } from "../../async/keyed-queue.ts";
import type { FileSystem } from "../../files/file-system.ts";
import { decodeBase64 } from "../../protocol/base64.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { Handler, Handlers } from "../handlers.ts";
import type { WalledFileServers } from "../host-services.ts";
import { LISTING_ANSWER_BYTES } from "../server-config.ts";
import type { SharedRoom } from "../server-resources.ts";
import type { Session } from "../session.ts";
import type { Peer } from "./peer.ts";

const FILE_METHODS = [
  "fs/readFile",
  "fs/writeFile",
  "fs/createDirectory",
  "fs/getMetadata",
  "fs/canonicalize",
  "fs/readDirectory",
  "fs/walk",
  "fs/remove",
  "fs/copy",
  "fs/open",
  "fs/readBlock",
  "fs/writeBlock",
  "fs/close",
  "fs/watchMissing",
  "fs/scan",
  "fs/put",
  "fs/setAttributes",
  "fs/openPart",
  "fs/checksum",
  "fs/commit",
] as const;
export type FileMethod = (typeof FILE_METHODS)[number];

/** As base64 it still fits into one of JavaScript's strings, which end a little below 512 Mi characters. */
const MAX_ANSWERED_FILE_BYTES = 400_000_000;

/** Of one connection: each has a file open, and more than these only wait for Node's few file threads. */
const PUTS_AT_ONCE = 16;

const CHANGES: ReadonlySet<FileMethod> = new Set([
  "fs/writeFile",
  "fs/createDirectory",
  "fs/remove",
  "fs/copy",
  "fs/put",
  "fs/setAttributes",
]);
const STAY_OPEN: ReadonlySet<FileMethod> = new Set([
  "fs/open",
  "fs/readBlock",
  "fs/writeBlock",
  "fs/close",
  "fs/watchMissing",
  "fs/openPart",
  "fs/checksum",
  "fs/commit",
]);

/** The same methods, of a connection whose files are opened by the first of them. */
export function lazyFileMethods(open: () => Promise<ConnectionFiles>): Handlers<FileMethod> {
  const lazy = <M extends FileMethod>(method: M): Handler<M> => {
    return async (params, context) => {
      const files = await open();
      const walls = "sandbox" in params && !isUnrestricted(params.sandbox) ? params.sandbox : undefined;
      return walls === undefined
        ? files.methods[method](params, context)
        : files.behindWalls(method, params, walls);
    };
  };
  // Every name of the list is there, each with a handler of its own method.
  return Object.fromEntries(
    FILE_METHODS.map((method) => [method, lazy(method)]),
  ) as unknown as Handlers<FileMethod>;
}

export interface ConnectionFilesDeps {
  files: FileSystem;
  peer: Peer;
  /** An order begun on a lost connection holds on the session's next one. */
  session: Session;
  walled: WalledFileServers | undefined;
  room: SharedRoom;
}

/** `fs/*` of one connection. Changes keep their order, so do the blocks of one handle; looking does not wait for either. */
export class ConnectionFiles {
  readonly #files: FileSystem;
  readonly #handles: ReturnType<FileSystem["openHandles"]>;
  readonly #watches: ReturnType<FileSystem["openWatches"]>;
  readonly #walled: WalledFileServers | undefined;
  readonly #scope: object;
  readonly #changes: Lanes<"changes">;
  readonly #blocks = new Lanes<string>();
  readonly #puts = new ByteTurns(PUTS_AT_ONCE);

  constructor({ files, peer, session, walled, room }: ConnectionFilesDeps) {
    this.#files = files;
    this.#walled = walled;
    this.#scope = session;
    this.#changes = session.fileChanges;
    this.#handles = files.openHandles(() => room.fileHandles.enter());
    this.#watches = files.openWatches(
      (watchId) => peer.notify({ method: "fs/missingChanged", params: { watchId } }),
      (paths) => room.watchedPaths.enter(paths),
    );
  }

  readonly methods: Handlers<FileMethod> = {
    "fs/readFile": async (params, context) => {
      const { data } = await this.#files.readFile(params, context.admit);
      if (data.length > MAX_ANSWERED_FILE_BYTES) {
        throw invalidRequest(
          `file is too large to read in one answer: limit is ${MAX_ANSWERED_FILE_BYTES} bytes; read it in blocks with fs/open and fs/readBlock`,
        );
      }
      return { dataBase64: data };
    },
    "fs/writeFile": async ({ dataBase64, ...params }) => {
      const decoded = decodeBase64(dataBase64);
      if (!decoded.ok)
        throw invalidRequest(`fs/writeFile requires valid base64 dataBase64: ${decoded.problem}`);
      return this.#change(() => this.#files.writeFile({ ...params, data: decoded.bytes }));
    },
    "fs/createDirectory": async (params) => this.#change(() => this.#files.createDirectory(params)),
    "fs/getMetadata": async (params) => this.#files.getMetadata(params),
    "fs/canonicalize": async (params) => this.#files.canonicalize(params),
    "fs/readDirectory": async (params, { admit }) => {
      await admit(LISTING_ANSWER_BYTES);
      return this.#files.readDirectory(params);
    },
    "fs/walk": async (params, { admit }) => {
      await admit(LISTING_ANSWER_BYTES);
      return this.#files.walk(params);
    },
    "fs/remove": async (params) => this.#change(() => this.#files.remove(params)),
    "fs/copy": async (params) => this.#change(() => this.#files.copy(params)),
    "fs/open": async (params) => this.#blocks.run(params.handleId, () => this.#handles.open(params)),
    "fs/readBlock": (params, { admit }) =>
      this.#blocks.run(params.handleId, () => this.#handles.readBlock(params, admit)),
    "fs/writeBlock": (params) =>
      this.#blocks.run(params.handleId, async () => {
        await this.#handles.writeBlock(params);
        return {};
      }),
    "fs/close": (params) =>
      this.#blocks.run(params.handleId, async () => {
        await this.#handles.closeHandle(params);
        return {};
      }),
    "fs/watchMissing": async (params) => this.#watches.watchMissing(params),
    "fs/scan": async (params, { admit }) => {
      await admit(LISTING_ANSWER_BYTES);
      return this.#files.scan(params);
    },
    // Each is whole in itself, so many of them go at once: a tree of small files is put by thousands of these.
    "fs/put": async (params, { gone }) => {
      const leave = await this.#puts.take(1, gone);
      try {
        await this.#files.put(params);
        return {};
      } finally {
        leave();
      }
    },
    "fs/setAttributes": async (params) => this.#change(() => this.#files.setAttributes(params)),
    "fs/openPart": (params) => this.#blocks.run(params.handleId, () => this.#handles.openPart(params)),
    "fs/checksum": (params) => this.#blocks.run(params.handleId, () => this.#handles.checksum(params)),
    "fs/commit": (params) =>
      this.#blocks.run(params.handleId, async () => {
        await this.#handles.commit(params);
        return {};
      }),
  };

  /** Carries out a method inside the walls its sandbox asks for, or refuses. */
  async behindWalls<M extends FileMethod>(
    method: M,
    params: ParamsOf<M>,
    walls: unknown,
  ): Promise<ResultOf<M>> {
    // A handle or a watch would have to live inside the walls, beyond the request: no client asks for it.
    if (!this.#walled || STAY_OPEN.has(method))
      throw invalidParams("sandbox intent cannot be enforced on this executor");
    const walled = this.#walled;
    const call = async () => {
      const inside = await walled.behind(walls, this.#scope);
      return inside.call(method, { ...params, sandbox: undefined });
    };
    return CHANGES.has(method) ? this.#changes.run("changes", call) : call();
  }

  async close(): Promise<void> {
    this.#watches.close();
    await this.#handles.close();
  }

  async #change(task: () => Promise<void>): Promise<Record<string, never>> {
    await this.#changes.run("changes", task);
    return {};
  }
}

/** An intent that asks for no walls needs none. */
export function isUnrestricted(sandbox: unknown): boolean {
  if (typeof sandbox !== "object" || sandbox === null || !("permissions" in sandbox)) return false;
  const { permissions } = sandbox;
  return (
    typeof permissions === "object" &&
    permissions !== null &&
    "type" in permissions &&
    permissions.type === "disabled"
  );
}
