import type { FileHandle } from "node:fs/promises";
import { constants, open, stat } from "node:fs/promises";
import { invalidRequest, notFound } from "../protocol/errors.ts";
import type {
  ChecksumParams,
  CommitParams,
  FileHandleTable,
  OpenParams,
  OpenPartParams,
  ReadBlockParams,
  WriteBlockParams,
} from "./file-system.ts";
import { RunningHash } from "./incremental-hash.ts";
import { displayPath, type NativePath, nativePathFromUri } from "./native-path.ts";
import { answeringOsErrors, errnoName } from "./os-error.ts";
import { checkReplaceable, dressFile, replaceBy } from "./put.ts";
import { keepRegular, NEW_FILE_MODE, OPEN_TO_WRITE, openToRead } from "./read-write.ts";

/** The protocol's limits. */
export const MAX_FILE_HANDLES = 128;
export const MAX_HANDLE_ID_BYTES = 32;
export const MAX_BLOCK_BYTES = 1024 * 1024;

/** The files one connection has open, by the ids it chose. */
export class FileHandles implements FileHandleTable {
  readonly #enter: () => () => void;
  #files = new Map<string, OpenFile>();
  #closed = false;

  /** `enter` may refuse one more by throwing, and gives how to leave. */
  constructor(enter: () => () => void = () => () => undefined) {
    this.#enter = enter;
  }

  async open(params: OpenParams): Promise<{ handleId: string }> {
    const path = nativePathFromUri(params.path);
    const isReplaced = params.mode === "replace";
    await this.#opened(params.handleId, path, () => (isReplaced ? openToReplace(path) : openToRead(path)));
    return { handleId: params.handleId };
  }

  /** A file that a copy was left in, or a new one. */
  async openPart(params: OpenPartParams): Promise<{ size: number }> {
    const path = nativePathFromUri(params.path);
    const file = await this.#opened(params.handleId, path, () => openPart(path), true);
    return { size: (await answeringOsErrors(() => file.stat())).size };
  }

  async #opened(
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
    const leave = this.#enter();
    const opening = answeringOsErrors(openFile);
    const file: OpenFile = { opening, leave, path, hash: new RunningHash(isHashed) };
    this.#files.set(handleId, file);
    try {
      return await opening;
    } catch (error) {
      leave();
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
    return await answeringOsErrors(async () => {
      const block = Buffer.allocUnsafe(params.len);
      let length = 0;
      while (length < params.len) {
        const { bytesRead } = await file.read(block, length, params.len - length, params.offset + length);
        if (bytesRead === 0) break;
        length += bytesRead;
      }
      const chunk = block.subarray(0, length);
      hash.wasRead(params.offset, chunk);
      return { chunk, eof: length < params.len };
    });
  }

  async writeBlock(params: WriteBlockParams): Promise<void> {
    checkBlockLength("write", params.chunk.byteLength);
    const { opening, hash } = this.#file(params.handleId);
    const file = await opening;
    await answeringOsErrors(async () => {
      let written = 0;
      while (written < params.chunk.byteLength) {
        const left = params.chunk.byteLength - written;
        written += (await file.write(params.chunk, written, left, params.offset + written)).bytesWritten;
      }
      hash.wasWritten(params.offset, params.chunk);
    });
  }

  async checksum({ handleId, length }: ChecksumParams): Promise<{ sha256: string | null }> {
    const { opening, hash } = this.#file(handleId);
    const file = await opening;
    return { sha256: await answeringOsErrors(() => hash.of(file, length)) };
  }

  async commit(params: CommitParams): Promise<void> {
    const { opening, hash, path: part } = this.#file(params.handleId);
    const file = await opening;
    const path = nativePathFromUri(params.path);
    await answeringOsErrors(async () => {
      const { size } = await file.stat();
      if (size !== params.size)
        throw invalidRequest(`the part has ${size} bytes where the source has ${params.size}`);
      if ((await hash.of(file, size)) !== params.sha256.toLowerCase())
        throw invalidRequest("the part has another SHA-256 than the source");
      const there = await checkReplaceable(path);
      await dressFile(file, params, there);
      await replaceBy(part, path);
    });
    await this.closeHandle(params);
  }

  /** Fine for an id that is not open. */
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
    if (file === undefined) throw notFound(`unknown file handle \`${handleId}\``);
    return file;
  }
}

interface OpenFile {
  /** A promise while the file is being opened, so that its id and its place count from the start. */
  opening: Promise<FileHandle>;
  /** Its place among all files of the server is free again. */
  leave: () => void;
  path: NativePath;
  /** Of what was read or written from the beginning on. */
  hash: RunningHash;
}

/** The client that opened the file has been told why it did not open; and a file that fails to close is closed all the same. */
async function closeWhenOpen({ opening, leave }: OpenFile): Promise<void> {
  const file = await opening.catch(() => null);
  await file?.close().catch(() => undefined);
  leave();
}

async function openToReplace(path: NativePath): Promise<FileHandle> {
  const refusal = `path \`${displayPath(path)}\` is not a file`;
  const there = await stat(path).catch((error: unknown) => {
    if (errnoName(error) === "ENOENT") return null;
    throw error;
  });
  // A directory is left to the open below, whose error text is better; a device must not be opened.
  if (there !== null && !there.isFile() && !there.isDirectory() && !there.isFIFO())
    throw invalidRequest(refusal);
  const file = await open(path, OPEN_TO_WRITE | constants.O_TRUNC, NEW_FILE_MODE);
  return keepRegular(file, refusal);
}

/** Only for its owner until it is whole; a link in its place is refused. */
async function openPart(path: NativePath): Promise<FileHandle> {
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  return keepRegular(await open(path, flags, 0o600), `path \`${displayPath(path)}\` is not a file`);
}

function checkBlockLength(direction: "read" | "write", length: number): void {
  if (length >= 1 && length <= MAX_BLOCK_BYTES) return;
  throw invalidRequest(`file ${direction} block length must be between 1 and ${MAX_BLOCK_BYTES}`);
}
