import type * as copies from "../protocol/copy-schemas.ts";
import type * as wire from "../protocol/file-schemas.ts";
import type { Infer } from "../protocol/schema.ts";

/** What a server needs of files. Every path is a `file:` URI; failures are `RequestError`s with the wire's texts. */
export interface FileSystem {
  /** `admit` is asked with the file's size before any of it is read, and waited for. */
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
  put(params: PutParams): Promise<void>;
  setAttributes(params: SetAttributesParams): Promise<void>;
  /** The open files of one connection. `enter` may refuse one more by throwing, and gives how to leave. */
  openHandles(enter?: () => () => void): FileHandleTable;
  /** The watches of one connection; `onChanged` is called at most once a watch. `enter` is asked for so many paths. */
  openWatches(onChanged: (watchId: number) => void, enter?: (paths: number) => () => void): MissingWatchTable;
}

export interface FileHandleTable {
  open(params: OpenParams): Promise<{ handleId: string }>;
  /** `admit` is asked with the block's length before any of it is read, and waited for. */
  readBlock(
    params: ReadBlockParams,
    admit?: (bytes: number) => Promise<void>,
  ): Promise<{ chunk: Uint8Array; eof: boolean }>;
  writeBlock(params: WriteBlockParams): Promise<void>;
  openPart(params: OpenPartParams): Promise<{ size: number }>;
  checksum(params: ChecksumParams): Promise<{ sha256: string | null }>;
  /** Closes the handle when it has worked. */
  commit(params: CommitParams): Promise<void>;
  closeHandle(params: { handleId: string }): Promise<void>;
  /** Closes every handle; resolves when the last one is gone. */
  close(): Promise<void>;
}

export interface MissingWatchTable {
  watchMissing(params: WatchMissingParams): Promise<{ watching: boolean }>;
  close(): void;
}

/** The wire's parameters without its sandbox, which is settled before a file is touched. */
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
export type PutParams = Params<typeof copies.putParams>;
export type SetAttributesParams = Params<typeof copies.setAttributesParams>;
export type OpenPartParams = Infer<typeof copies.openPartParams>;
export type ChecksumParams = Infer<typeof copies.checksumParams>;
export type CommitParams = Infer<typeof copies.commitParams>;
