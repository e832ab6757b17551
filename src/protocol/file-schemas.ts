import { pathUri } from "./path-uri-schema.ts";
import { nullishSandbox } from "./process-schemas.ts";
import { array, base64Text, boolean, bytes, enumOf, f64, id, nullish, object, string, u64, usize } from "./schema.ts";

/** Schemas of `fs/*`. Every method accepts an optional sandbox. Paths are `file:` URIs. */

const sandbox = nullishSandbox;
/** Default: true. False rejects symbolic links anywhere in the path. */
const followSymlinks = nullish(boolean);

export const readFileParams = object("WireFsReadFileParams", () => ({ path: pathUri, followSymlinks, sandbox }));
export const readFileResult = object("ReadFileResult", () => ({ dataBase64: bytes }));
export const writeFileParams = object("WireFsWriteFileParams", () => ({
  path: pathUri,
  dataBase64: base64Text,
  followSymlinks,
  sandbox,
}));
export const createDirectoryParams = object("WireFsCreateDirectoryParams", () => ({
  path: pathUri,
  /** Default: true. Creates missing parents and accepts an existing directory. */
  recursive: nullish(boolean),
  followSymlinks,
  sandbox,
}));
export const getMetadataParams = object("WireFsGetMetadataParams", () => ({
  path: pathUri,
  followSymlinks,
  sandbox,
}));
/** Metadata of the target of the path, except `isSymlink`, which describes the path itself. */
export const metadataResult = object("Metadata", () => ({
  isDirectory: boolean,
  isFile: boolean,
  isSymlink: boolean,
  size: u64,
  /** 0 if the file system does not record it. */
  createdAtMs: f64,
  modifiedAtMs: f64,
}));
export const canonicalizeParams = object("WireFsCanonicalizeParams", () => ({ path: pathUri, sandbox }));
export const canonicalizeResult = object("CanonicalizeResult", () => ({ path: string }));
export const readDirectoryParams = object("WireFsReadDirectoryParams", () => ({ path: pathUri, sandbox }));
export const directoryEntry = object("DirectoryEntry", () => ({
  fileName: string,
  isDirectory: boolean,
  isFile: boolean,
}));
export const readDirectoryResult = object("ReadDirectoryResult", () => ({ entries: array(directoryEntry) }));
export const walkParams = object("WireFsWalkParams", () => ({
  path: pathUri,
  options: object("WalkOptions", () => ({
    maxDepth: usize,
    maxDirectories: usize,
    maxEntries: usize,
    followDirectorySymlinks: boolean,
    /** Lists directories with a leading dot, but does not descend into them. */
    pruneHiddenDirectories: nullish(boolean),
  })),
  sandbox,
}));
export const walkResult = object("WalkResult", () => ({
  entries: array(object("WalkEntry", () => ({ path: string, kind: enumOf("file", "directory") }))),
  errors: array(object("WalkError", () => ({ path: string, message: string }))),
  truncated: boolean,
}));
export const removeParams = object("WireFsRemoveParams", () => ({
  path: pathUri,
  /** Default: true. */
  recursive: nullish(boolean),
  /** Default: true. Ignores a missing path. */
  force: nullish(boolean),
  followSymlinks,
  sandbox,
}));
export const copyParams = object("WireFsCopyParams", () => ({
  sourcePath: pathUri,
  destinationPath: pathUri,
  recursive: boolean,
  sandbox,
}));
export const openParams = object("WireFsOpenParams", () => ({
  handleId: id,
  path: pathUri,
  /** Default: `read`. `replace` immediately truncates or creates the file in place. */
  mode: nullish(enumOf("read", "replace")),
  sandbox,
}));
export const openResult = object("OpenResult", () => ({ handleId: id }));
/** Maximum bytes of a block. */
export const MAX_BLOCK_BYTES = 1024 * 1024;
export const readBlockParams = object("FsReadBlockParams", () => ({ handleId: id, offset: u64, len: usize }));
export const readBlockResult = object("ReadBlockResult", () => ({ chunk: bytes, eof: boolean }));
export const writeBlockParams = object("FsWriteBlockParams", () => ({ handleId: id, offset: u64, chunk: bytes }));
export const closeParams = object("FsCloseParams", () => ({ handleId: id }));
export const watchMissingParams = object("FsWatchMissingParams", () => ({
  /** Must be greater than all earlier ids of the connection. A new watch ends the previous one. */
  watchId: u64,
  missing: array(pathUri),
  present: nullish(pathUri),
  sandbox,
}));
export const watchMissingResult = object("WatchMissingResult", () => ({ watching: boolean }));
export const missingChangedParams = object("MissingChangedNotification", () => ({ watchId: u64 }));
