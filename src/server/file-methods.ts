import { Lanes } from "../async/lanes.ts";
import type { FileSystem } from "../files/file-system.ts";
import { decodeBase64 } from "../protocol/base64.ts";
import { invalidParams, invalidRequest } from "../protocol/errors.ts";
import type { Handler, Handlers } from "./handlers.ts";
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
] as const;
type FileMethod = (typeof FILE_METHODS)[number];

/** The same methods, of a connection whose files are opened by the first of them. */
export function lazyFileMethods(open: () => Promise<ConnectionFiles>): Handlers<FileMethod> {
  const lazy = <M extends FileMethod>(method: M): Handler<M> => {
    return async (params, context) => (await open()).methods[method](params, context);
  };
  // Every name of the list is there, each with a handler of its own method.
  return Object.fromEntries(
    FILE_METHODS.map((method) => [method, lazy(method)]),
  ) as unknown as Handlers<FileMethod>;
}

/** `fs/*` of one connection. Changes keep their order, so do the blocks of one handle; looking does not wait for either. */
export class ConnectionFiles {
  readonly #files: FileSystem;
  readonly #handles: ReturnType<FileSystem["openHandles"]>;
  readonly #watches: ReturnType<FileSystem["openWatches"]>;
  readonly #lanes = new Lanes<string>();

  constructor(files: FileSystem, peer: Peer) {
    this.#files = files;
    this.#handles = files.openHandles();
    this.#watches = files.openWatches((watchId) =>
      peer.notify({ method: "fs/missingChanged", params: { watchId } }),
    );
  }

  readonly methods: Handlers<FileMethod> = {
    "fs/readFile": async (params) => {
      refuseSandbox(params);
      return { dataBase64: (await this.#files.readFile(params)).data };
    },
    "fs/writeFile": async ({ dataBase64, ...params }) => {
      refuseSandbox(params);
      const decoded = decodeBase64(dataBase64);
      if (!decoded.ok)
        throw invalidRequest(`fs/writeFile requires valid base64 dataBase64: ${decoded.problem}`);
      return this.#change(() => this.#files.writeFile({ ...params, data: decoded.bytes }));
    },
    "fs/createDirectory": async (params) => {
      refuseSandbox(params);
      return this.#change(() => this.#files.createDirectory(params));
    },
    "fs/getMetadata": async (params) => {
      refuseSandbox(params);
      return this.#files.getMetadata(params);
    },
    "fs/canonicalize": async (params) => {
      refuseSandbox(params);
      return this.#files.canonicalize(params);
    },
    "fs/readDirectory": async (params) => {
      refuseSandbox(params);
      return this.#files.readDirectory(params);
    },
    "fs/walk": async (params) => {
      refuseSandbox(params);
      return this.#files.walk(params);
    },
    "fs/remove": async (params) => {
      refuseSandbox(params);
      return this.#change(() => this.#files.remove(params));
    },
    "fs/copy": async (params) => {
      refuseSandbox(params);
      return this.#change(() => this.#files.copy(params));
    },
    "fs/open": async (params) => {
      refuseSandbox(params);
      return this.#lanes.run(handleLane(params), () => this.#handles.open(params));
    },
    "fs/readBlock": (params) => this.#lanes.run(handleLane(params), () => this.#handles.readBlock(params)),
    "fs/writeBlock": (params) =>
      this.#lanes.run(handleLane(params), async () => {
        await this.#handles.writeBlock(params);
        return {};
      }),
    "fs/close": (params) =>
      this.#lanes.run(handleLane(params), async () => {
        await this.#handles.closeHandle(params);
        return {};
      }),
    "fs/watchMissing": async (params) => {
      refuseSandbox(params);
      return this.#watches.watchMissing(params);
    },
  };

  async close(): Promise<void> {
    this.#watches.close();
    await this.#handles.close();
  }

  async #change(task: () => Promise<void>): Promise<Record<string, never>> {
    await this.#lanes.run("changes", task);
    return {};
  }
}

const handleLane = ({ handleId }: { handleId: string }) => `handle ${handleId}`;

/** File access behind walls is not built: refusing is honest, ignoring would not be. */
function refuseSandbox({ sandbox }: { sandbox?: unknown }): void {
  if (sandbox !== undefined && !isUnrestricted(sandbox)) {
    throw invalidParams("sandbox intent cannot be enforced on this executor");
  }
}

/** An intent that asks for no walls needs none. */
function isUnrestricted(sandbox: unknown): boolean {
  if (typeof sandbox !== "object" || sandbox === null || !("permissions" in sandbox)) return false;
  const { permissions } = sandbox;
  return (
    typeof permissions === "object" &&
    permissions !== null &&
    "type" in permissions &&
    permissions.type === "disabled"
  );
}
