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
  /** The open files of one connection. */
  openHandles(): FileHandleTable;
  /** The watches of one connection; `onChanged` is called at most once a watch. */
  openWatches(onChanged: (watchId: number) => void): MissingWatchTable;
}

export interface FileHandleTable {
  open(params: OpenParams): Promise<{ handleId: string }>;
  readBlock(params: ReadBlockParams): Promise<{ chunk: Uint8Array; eof: boolean }>;
  writeBlock(params: WriteBlockParams): Promise<void>;
  closeHandle(params: { handleId: string }): Promise<void>;
  /** Closes every handle; resolves when the last one is gone. */
  close(): Promise<void>;
}

export interface MissingWatchTable {
  watchMissing(params: WatchMissingParams): Promise<{ watching: boolean }>;
  close(): void;
}

export interface ReadFileParams {
  path: string;
  /** Default true. False refuses a symbolic link anywhere in the path. */
  followSymlinks?: boolean | undefined;
}

export interface WriteFileParams {
  path: string;
  data: Uint8Array;
  followSymlinks?: boolean | undefined;
}

export interface CreateDirectoryParams {
  path: string;
  /** Default true: makes missing parents, and a directory that is there already is fine. */
  recursive?: boolean | undefined;
  followSymlinks?: boolean | undefined;
}

export interface GetMetadataParams {
  path: string;
  followSymlinks?: boolean | undefined;
}

/** Of what the path leads to, except `isSymlink`, which is of the path itself. */
export interface FileMetadata {
  isDirectory: boolean;
  isFile: boolean;
  isSymlink: boolean;
  size: number;
  /** 0 where the file system does not tell. */
  createdAtMs: number;
  modifiedAtMs: number;
}

export interface DirectoryEntry {
  fileName: string;
  isDirectory: boolean;
  isFile: boolean;
}

export interface WalkParams {
  path: string;
  options: {
    maxDepth: number;
    maxDirectories: number;
    maxEntries: number;
    followDirectorySymlinks: boolean;
    /** Lists directories whose name begins with a dot, but does not enter them. */
    pruneHiddenDirectories?: boolean | undefined;
  };
}

export interface WalkResult {
  entries: { path: string; kind: "file" | "directory" }[];
  errors: { path: string; message: string }[];
  truncated: boolean;
}

export interface RemoveParams {
  path: string;
  /** Default true. */
  recursive?: boolean | undefined;
  /** Default true: a path that is not there is no error. */
  force?: boolean | undefined;
  followSymlinks?: boolean | undefined;
}

export interface CopyParams {
  sourcePath: string;
  destinationPath: string;
  recursive: boolean;
}

export interface OpenParams {
  handleId: string;
  path: string;
  /** `replace` empties or creates the file at once, in place. Default `read`. */
  mode?: "read" | "replace" | undefined;
}

export interface ReadBlockParams {
  handleId: string;
  offset: number;
  len: number;
}

export interface WriteBlockParams {
  handleId: string;
  offset: number;
  chunk: Uint8Array;
}

export interface WatchMissingParams {
  /** Must be greater than any the connection used before; a greater one ends the watch before it. */
  watchId: number;
  missing: string[];
  present?: string | undefined;
}
