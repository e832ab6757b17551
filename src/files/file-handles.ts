import { constants, type FileHandle, open, stat } from "node:fs/promises";
import { nullIfMissing } from "../base/error-code.ts";
import { invalidRequest, notFound } from "../protocol/errors.ts";
import { MAX_BLOCK_BYTES } from "../protocol/file-schemas.ts";
import type {
  ChecksumParams,
  CommitParams,
  FileHandleTable,
  OpenParams,
  OpenPartialParams,
  ReadBlockParams,
  WriteBlockParams,
} from "./file-system.ts";
import { GMAC_KEY_BYTES, IncrementalHash } from "./incremental-hash.ts";
import { displayPath, type NativePath, nativePathFromUri } from "./native-path.ts";
import { reaching } from "./open-no-follow.ts";
import { withOsErrors } from "./os-error.ts";
import { NEW_FILE_MODE, openForRead, requireRegular, WRITE_FLAGS, writeBytesAt } from "./read-write.ts";
import { applyAttributes, renameOver, requireReplaceable } from "./write-atomic.ts";

/** The protocol's limits. */
export const MAX_FILE_HANDLES = 128;
export const MAX_HANDLE_ID_BYTES = 32;

/** The open files of one connection, by the ids that the client chose. */
export class FileHandles implements FileHandleTable {
  readonly #acquire: () => () => void;
  #files = new Map<string, OpenFile>();
  #closed = false;

  /** `acquire` throws if the server's cap is reached; otherwise it returns a function that releases the slot. */
  constructor(acquire: () => () => void = () => () => undefined) {
    this.#acquire = acquire;
  }

  async open(params: OpenParams): Promise<{ handleId: string }> {
    const path = nativePathFromUri(params.path);
    const isReplaced = params.mode === "replace";
    await this.#openHandle(params.handleId, path, () => (isReplaced ? openForReplace(path) : openForRead(path)));
    return { handleId: params.handleId };
  }

  /** Opens the partial file of an interrupted copy, or creates it. */
  async openPartial(params: OpenPartialParams): Promise<{ size: number }> {
    const path = nativePathFromUri(params.path);
    const openFile = () => reaching(path, params.followSymlinks, (safePath) => openPartialFile(safePath, path));
    const file = await this.#openHandle(params.handleId, path, openFile, true);
    return { size: (await withOsErrors(() => file.stat())).size };
  }

  async #openHandle(
    handleId: string,
    path: NativePath,
    openFile: () => Promise<FileHandle>,
    isHashed = false,
  ): Promise<FileHandle> {
    if (Buffer.byteLength(handleId) > MAX_HANDLE_ID_BYTES) {
      throw invalidRequest(`file handle ID must not exceed ${MAX_HANDLE_ID_BYTES} bytes`);
    }
    if (this.#closed || this.#files.size >= MAX_FILE_HANDLES) {
      throw invalidRequest(`at most ${MAX_FILE_HANDLES} file handles may be open per connection`);
    }
    if (this.#files.has(handleId)) throw invalidRequest(`file handle \`${handleId}\` already exists`);
    const release = this.#acquire();
    const opening = withOsErrors(openFile);
    const file: OpenFile = { opening, release, path, hash: new IncrementalHash(isHashed) };
    this.#files.set(handleId, file);
    try {
      return await opening;
    } catch (error) {
      release();
      if (this.#files.get(handleId) === file) this.#files.delete(handleId);
      throw error;
    }
  }

  async readBlock(
    params: ReadBlockParams,
    admit?: (bytes: number) => Promise<void>,
  ): Promise<{ chunk: Uint8Array; eof: boolean }> {
    checkBlockLength("read", params.len);
    const { opening, hash } = this.#file(params.handleId);
    const file = await opening;
    await admit?.(params.len);
    return await withOsErrors(async () => {
      const block = Buffer.allocUnsafe(params.len);
      let length = 0;
      while (length < params.len) {
        const { bytesRead } = await file.read(block, length, params.len - length, params.offset + length);
        if (bytesRead === 0) break;
        length += bytesRead;
      }
      const chunk = block.subarray(0, length);
      hash.onRead(params.offset, chunk);
      return { chunk, eof: length < params.len };
    });
  }

  async writeBlock(params: WriteBlockParams): Promise<void> {
    checkBlockLength("write", params.chunk.byteLength);
    const { opening, hash } = this.#file(params.handleId);
    const file = await opening;
    await withOsErrors(async () => {
      await writeBytesAt(file, params.chunk, params.offset);
      hash.onWrite(params.offset, params.chunk);
    });
  }

  async checksum({ handleId, length, gmacKey }: ChecksumParams): Promise<{ digest: string | null }> {
    if (gmacKey !== undefined && gmacKey.length !== GMAC_KEY_BYTES)
      throw invalidRequest(`checksum: \`gmacKey\` has ${gmacKey.length} bytes, expected ${GMAC_KEY_BYTES}`);
    const { opening, hash } = this.#file(handleId);
    const file = await opening;
    hash.select(gmacKey ?? null);
    return { digest: await withOsErrors(() => hash.digest(file, length)) };
  }

  async commit(params: CommitParams): Promise<void> {
    const { opening, hash, path: partial } = this.#file(params.handleId);
    const file = await opening;
    const path = nativePathFromUri(params.path);
    await withOsErrors(async () => {
      const { size } = await file.stat();
      if (size !== params.size)
        throw invalidRequest(`commit: partial file has ${size} bytes, source has ${params.size}`);
      if ((await hash.digest(file, size)) !== params.digest.toLowerCase())
        throw invalidRequest("commit: checksum of the partial file differs from the source");
      await reaching(path, params.followSymlinks, async (safePath) => {
        const replaced = await requireReplaceable(safePath, path);
        await applyAttributes(file, params, replaced);
        await reaching(partial, params.followSymlinks, (safePartial) => renameOver(safePartial, safePath, path));
      });
    });
    await this.closeHandle(params);
  }

  /** Does nothing if the id is not open. */
  async closeHandle(params: { handleId: string }): Promise<void> {
    const file = this.#files.get(params.handleId);
    if (file === undefined) return;
    this.#files.delete(params.handleId);
    await closeWhenOpen(file);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const files = [...this.#files.values()];
    this.#files.clear();
    await Promise.all(files.map(closeWhenOpen));
  }

  #file(handleId: string): OpenFile {
    const file = this.#files.get(handleId);
    if (file === undefined) throw notFound(`unknown file handle \`${handleId}\``, { reason: "unknownFileHandle" });
    return file;
  }
}

interface OpenFile {
  /** Stored while the file is being opened, so that its id and its slot count from the start. */
  opening: Promise<FileHandle>;
  /** Releases the slot of the server's cap. */
  release: () => void;
  path: NativePath;
  /** Hash of the bytes read or written from the start of the file. */
  hash: IncrementalHash;
}

/** Ignores errors: `open` has reported its own, and a failed close still closes the descriptor. */
async function closeWhenOpen({ opening, release }: OpenFile): Promise<void> {
  const file = await opening.catch(() => null);
  await file?.close().catch(() => undefined);
  release();
}

async function openForReplace(path: NativePath): Promise<FileHandle> {
  const refusal = `path \`${displayPath(path)}\` is not a file`;
  const existing = await stat(path).catch(nullIfMissing);
  // A directory is left to `open`, whose error is clearer; a device must not be opened.
  if (existing !== null && !existing.isFile() && !existing.isDirectory() && !existing.isFIFO())
    throw invalidRequest(refusal);
  const file = await open(path, WRITE_FLAGS | constants.O_TRUNC, NEW_FILE_MODE);
  return requireRegular(file, refusal);
}

/** Creates the file with mode 0600 until it is complete; rejects a link. */
async function openPartialFile(path: NativePath, named: NativePath): Promise<FileHandle> {
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  return requireRegular(await open(path, flags, 0o600), `path \`${displayPath(named)}\` is not a file`);
}

function checkBlockLength(direction: "read" | "write", length: number): void {
  if (length >= 1 && length <= MAX_BLOCK_BYTES) return;
  throw invalidRequest(`file ${direction} block length must be between 1 and ${MAX_BLOCK_BYTES}`);
}
