import { pathUri } from "./path-uri-schema.ts";
import { optionalSandbox } from "./process-schemas.ts";
import {
  array,
  boolean,
  bytes,
  f64,
  i32,
  id,
  nullable,
  object,
  oneOf,
  optional,
  string,
  u64,
  unit,
} from "./schema.ts";

/** The shapes of the `fs/*` methods that copy trees: with modes, times and links, atomic, and resumable. */

const sandbox = optionalSandbox;

/** What a path or an entry of a directory is. */
export const scannedEntry = object("ScannedEntry", {
  /** Percent-encoded as in a path URI, so that every name survives: the entry's URI is the directory's, `/` and this. */
  name: string,
  type: oneOf("file", "directory", "symlink", "other"),
  size: u64,
  /** The permission bits. */
  mode: i32,
  modifiedAtMs: f64,
  /** Where a symbolic link leads, percent-encoded like a name. */
  target: optional(string),
});
export const scanParams = object("FsScanParams", {
  path: pathUri,
  /** Entries whose encoded name comes after this one in byte order; for the next page. */
  after: optional(string),
  /** Default false. True tells of each link what it leads to; one that leads nowhere stays a link. */
  followLinks: optional(boolean),
  sandbox,
});
export const scanResult = object("FsScanResult", {
  /** The path itself, links followed; its name is empty. */
  self: scannedEntry,
  /** The entries of a directory, in the byte order of their names; empty for anything else. */
  entries: array(scannedEntry),
  /** There are more after the last one. */
  more: boolean,
});
/** Kept as they are when absent: a new file gets the server's default. */
const attributes = { mode: optional(i32), modifiedAtMs: optional(f64) };
export const putParams = object("FsPutParams", {
  path: pathUri,
  /** The whole file; absent for a link. */
  chunk: optional(bytes),
  /** Where the symbolic link leads, percent-encoded; absent for a file. */
  target: optional(string),
  ...attributes,
  sandbox,
});
export const setAttributesParams = object("FsSetAttributesParams", { path: pathUri, ...attributes, sandbox });
export const openPartParams = object("FsOpenPartParams", { handleId: id, path: pathUri });
export const openPartResult = object("FsOpenPartResult", {
  /** What is there already; 0 for a new one. */
  size: u64,
});
export const checksumParams = object("FsChecksumParams", {
  handleId: id,
  /** How many bytes from the beginning. */
  length: u64,
});
export const checksumResult = object("FsChecksumResult", {
  /** Null when the file is shorter. */
  sha256: nullable(string),
});
export const commitParams = object("FsCommitParams", {
  handleId: id,
  /** What the part is renamed to; must be on the same file system. */
  path: pathUri,
  /** What the part must be; anything else is refused and the part stays. */
  size: u64,
  sha256: string,
  ...attributes,
});
export const commitResult = unit;
