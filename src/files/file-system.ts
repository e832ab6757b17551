import type * as copies from "../protocol/copy-schemas.ts";
import type * as wire from "../protocol/file-schemas.ts";
import type { Infer } from "../protocol/schema.ts";

/** The file operations of a server. Every path is a `file:` URI; errors are `RequestError`s with the wire protocol's texts. */
export interface FileSystem {
  /** Awaits `admit` with the file's size before it reads any byte. */
  readFile(params: ReadFileParams, admit?: (bytes: number) => Promise<void>): Promise<{ data: Uint8Array }>;
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
  openWatches(
    onChanged: (watchId: number) => void,
    acquire?: (paths: number) => () => void,
  ): MissingPathWatches;
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
  checksum(params: ChecksumParams): Promise<{ sha256: string | null }>;
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

/** The parameters of the wire protocol without `sandbox`, which is resolved before. */
type Params<S> = Omit<Infer<S>, "sandbox">;

export type ReadFileParams = Params<typeof wire.readFileParams>;
export interface WriteFileParams extends Omit<Params<typeof wire.writeFileParams>, "dataBase64"> {
  data: Uint8Array;
}
export type CreateDirectoryParams = Params<typeof wire.createDirectoryParams>;
export type GetMetadataParams = Params<typeof wire.getMetadataParams>;
export type FileMetadata = Infer<typeof wire.metadataResult>;
export type DirectoryEntry = Infer<typeof wire.directoryEntry>;
export type WalkParams = Params<typeof wire.walkParams>;
export type WalkResult = Infer<typeof wire.walkResult>;
export type RemoveParams = Params<typeof wire.removeParams>;
export type CopyParams = Params<typeof wire.copyParams>;
export type OpenParams = Params<typeof wire.openParams>;
export type ReadBlockParams = Infer<typeof wire.readBlockParams>;
export type WriteBlockParams = Infer<typeof wire.writeBlockParams>;
export type WatchMissingParams = Params<typeof wire.watchMissingParams>;
export type ScanParams = Params<typeof copies.scanParams>;
export type ScanResult = Infer<typeof copies.scanResult>;
export type ScannedEntry = Infer<typeof copies.scannedEntry>;
export type WriteAtomicParams = Params<typeof copies.writeAtomicParams>;
export type SetAttributesParams = Params<typeof copies.setAttributesParams>;
export type OpenPartialParams = Infer<typeof copies.openPartialParams>;
export type ChecksumParams = Infer<typeof copies.checksumParams>;
export type CommitParams = Infer<typeof copies.commitParams>;
