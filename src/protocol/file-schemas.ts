import { pathUri } from "./path-uri-schema.ts";
import { optionalSandbox } from "./process-schemas.ts";
import { array, boolean, bytes, f64, id, object, oneOf, optional, string, u64, usize } from "./schema.ts";

/** The shapes of `fs/*`. Every method takes an optional sandbox; paths are `file:` URIs. */

const sandbox = optionalSandbox;
/** Default true. False refuses a symbolic link anywhere in the path. */
const followSymlinks = optional(boolean);

export const readFileParams = object("WireFsReadFileParams", { path: pathUri, followSymlinks, sandbox });
export const readFileResult = object("ReadFileResult", { dataBase64: bytes });
export const writeFileParams = object("WireFsWriteFileParams", {
  path: pathUri,
  dataBase64: string,
  followSymlinks,
  sandbox,
});
export const createDirectoryParams = object("WireFsCreateDirectoryParams", {
  path: pathUri,
  /** Default true: makes missing parents, and a directory that is there already is fine. */
  recursive: optional(boolean),
  followSymlinks,
  sandbox,
});
export const getMetadataParams = object("WireFsGetMetadataParams", {
  path: pathUri,
  followSymlinks,
  sandbox,
});
/** Of what the path leads to, except `isSymlink`, which is of the path itself. */
export const metadataResult = object("Metadata", {
  isDirectory: boolean,
  isFile: boolean,
  isSymlink: boolean,
  size: u64,
  /** 0 where the file system does not tell. */
  createdAtMs: f64,
  modifiedAtMs: f64,
});
export const canonicalizeParams = object("WireFsCanonicalizeParams", { path: pathUri, sandbox });
export const canonicalizeResult = object("CanonicalizeResult", { path: string });
export const readDirectoryParams = object("WireFsReadDirectoryParams", { path: pathUri, sandbox });
export const directoryEntry = object("DirectoryEntry", {
  fileName: string,
  isDirectory: boolean,
  isFile: boolean,
});
export const readDirectoryResult = object("ReadDirectoryResult", { entries: array(directoryEntry) });
export const walkParams = object("WireFsWalkParams", {
  path: pathUri,
  options: object("WalkOptions", {
    maxDepth: usize,
    maxDirectories: usize,
    maxEntries: usize,
    followDirectorySymlinks: boolean,
    /** Lists directories whose name begins with a dot, but does not enter them. */
    pruneHiddenDirectories: optional(boolean),
  }),
  sandbox,
});
export const walkResult = object("WalkResult", {
  entries: array(object("WalkEntry", { path: string, kind: oneOf("file", "directory") })),
  errors: array(object("WalkError", { path: string, message: string })),
  truncated: boolean,
});
export const removeParams = object("WireFsRemoveParams", {
  path: pathUri,
  /** Default true. */
  recursive: optional(boolean),
  /** Default true: a path that is not there is no error. */
  force: optional(boolean),
  followSymlinks,
  sandbox,
});
export const copyParams = object("WireFsCopyParams", {
  sourcePath: pathUri,
  destinationPath: pathUri,
  recursive: boolean,
  sandbox,
});
export const openParams = object("WireFsOpenParams", {
  handleId: id,
  path: pathUri,
  /** `replace` empties or creates the file at once, in place. Default `read`. */
  mode: optional(oneOf("read", "replace")),
  sandbox,
});
export const openResult = object("OpenResult", { handleId: id });
export const readBlockParams = object("FsReadBlockParams", { handleId: id, offset: u64, len: usize });
export const readBlockResult = object("ReadBlockResult", { chunk: bytes, eof: boolean });
export const writeBlockParams = object("FsWriteBlockParams", { handleId: id, offset: u64, chunk: bytes });
export const closeParams = object("FsCloseParams", { handleId: id });
export const watchMissingParams = object("FsWatchMissingParams", {
  /** Must be greater than any the connection used before; a greater one ends the watch before it. */
  watchId: u64,
  missing: array(pathUri),
  present: optional(pathUri),
  sandbox,
});
export const watchMissingResult = object("WatchMissingResult", { watching: boolean });
export const missingChangedParams = object("MissingChangedNotification", { watchId: u64 });
