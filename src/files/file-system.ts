import type * as copies from "../protocol/copy-schemas.ts";
import type * as wire from "../protocol/file-schemas.ts";
import type { Infer } from "../protocol/schema.ts";

/** The file operations of a server. Every path is a `file:` URI; errors are `RequestError`s with the wire protocol's texts. */
export interface FileSystem {
  /** Opens a file. Rejects everything except a regular file within the size limit of the protocol. */
  openFile(params: ReadFileParams): Promise<OpenedFile>;
  writeFile(params: WriteFileParams): Promise<void>;
  createDirectory(params: CreateDirectoryParams): Promise<void>;
  getMetadata(params: GetMetadataParams): Promise<FileMetadata>;
  canonicalize(params: { path: string }): Promise<{ path: string }>;
  readDirectory(params: { path: string }): Promise<{ entries: DirectoryEntry[] }>;
  walk(params: WalkParams): Promise<WalkResult>;
  remove(params: RemoveParams): Promise<void>;
  copy(params: CopyParams): Promise<void>;
  scan(params: ScanParams): Promise<ScanResult>;
  writeAtomic(params: WriteAtomicParams): Promise<void>;
  setAttributes(params: SetAttributesParams): Promise<void>;
  /** Creates the open files of one connection. `acquire` throws if the cap is reached and returns a release function. */
  openHandles(acquire?: () => () => void): FileHandleTable;
  /** Creates the watches of one connection. Calls `onChanged` at most once per watch and `acquire` with the number of paths. */
  openWatches(onChanged: (watchId: number) => void, acquire?: (paths: number) => () => void): MissingPathWatches;
}

/** An open file that is read once, as a whole or in parts. The owner closes it. */
export interface OpenedFile {
  /** Size at the time of the open. 0 for files without a size, such as those below /proc. */
  readonly size: number;
  /** Reads all bytes. */
  readAll(): Promise<Uint8Array>;
  /**
   * Reads the next part: at most `size` bytes in total, fewer if the file was truncated meanwhile. Empty at the end. The
   * length of each part is a multiple of three, except the last one. A part is valid until the next call.
   */
  next(): Promise<Uint8Array>;
  /** Waits for a pending read. */
  close(): Promise<void>;
}

export interface FileHandleTable {
  open(params: OpenParams): Promise<{ handleId: string }>;
  /** Awaits `admit` with the block's length before it reads any byte. */
  readBlock(
    params: ReadBlockParams,
    admit?: (bytes: number) => Promise<void>,
  ): Promise<{ chunk: Uint8Array; eof: boolean }>;
  writeBlock(params: WriteBlockParams): Promise<void>;
  openPartial(params: OpenPartialParams): Promise<{ size: number }>;
  checksum(params: ChecksumParams): Promise<{ digest: string | null }>;
  /** Closes the handle on success. */
  commit(params: CommitParams): Promise<void>;
  closeHandle(params: { handleId: string }): Promise<void>;
  /** Closes all handles; resolves when the last one is closed. */
  close(): Promise<void>;
}

export interface MissingPathWatches {
  watchMissing(params: WatchMissingParams): Promise<{ watching: boolean }>;
  close(): void;
}

/** The parameters of the wire protocol without `sandbox`, which the caller resolves first. */
type Params<S> = Omit<Infer<S>, "sandbox">;

export interface ReadFileParams extends Params<typeof wire.readFileParams> {}
export interface WriteFileParams extends Omit<Params<typeof wire.writeFileParams>, "dataBase64"> {
  data: Uint8Array;
}
export interface CreateDirectoryParams extends Params<typeof wire.createDirectoryParams> {}
export interface GetMetadataParams extends Params<typeof wire.getMetadataParams> {}
export interface FileMetadata extends Infer<typeof wire.metadataResult> {}
export interface DirectoryEntry extends Infer<typeof wire.directoryEntry> {}
export interface WalkParams extends Params<typeof wire.walkParams> {}
export interface WalkResult extends Infer<typeof wire.walkResult> {}
export interface RemoveParams extends Params<typeof wire.removeParams> {}
export interface CopyParams extends Params<typeof wire.copyParams> {}
export interface OpenParams extends Params<typeof wire.openParams> {}
export interface ReadBlockParams extends Infer<typeof wire.readBlockParams> {}
export interface WriteBlockParams extends Infer<typeof wire.writeBlockParams> {}
export interface WatchMissingParams extends Params<typeof wire.watchMissingParams> {}
export interface ScanParams extends Params<typeof copies.scanParams> {}
export interface ScanResult extends Infer<typeof copies.scanResult> {}
export interface ScannedEntry extends Infer<typeof copies.scannedEntry> {}
export interface WriteAtomicParams extends Params<typeof copies.writeAtomicParams> {}
export interface SetAttributesParams extends Params<typeof copies.setAttributesParams> {}
export interface OpenPartialParams extends Infer<typeof copies.openPartialParams> {}
export interface ChecksumParams extends Infer<typeof copies.checksumParams> {}
export interface CommitParams extends Infer<typeof copies.commitParams> {}
