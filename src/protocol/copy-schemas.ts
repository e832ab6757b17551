import { pathUri } from "./path-uri-schema.ts";
import { nullishSandbox } from "./process-schemas.ts";
import {
  array,
  boolean,
  bytes,
  enumOf,
  f64,
  i32,
  id,
  nullable,
  nullish,
  object,
  optional,
  string,
  u64,
} from "./schema.ts";

/** Schemas of the `fs/*` methods that copy directory trees: with modes, times and links, atomic and resumable. */

const sandbox = nullishSandbox;
/** Default: true. False rejects symbolic links among the directories of the path and does not follow its last name. */
const followSymlinks = nullish(boolean);

/** Metadata of a path or of a directory entry. */
export const scannedEntry = object("ScannedEntry", () => ({
  /** Percent-encoded, so that every byte survives. The URI of an entry is the URI of the directory, `/` and this name. */
  name: string,
  type: enumOf("file", "directory", "symlink", "other"),
  size: u64,
  /** Permission bits. */
  mode: i32,
  modifiedAtMs: f64,
  /** Target of a symbolic link, percent-encoded like `name`. */
  target: optional(string),
}));
export const scanParams = object("FsScanParams", () => ({
  path: pathUri,
  /** Returns only entries with an encoded name after this one in byte order. Selects the next page. */
  after: nullish(string),
  /** Default: false. True describes the target of each symbolic link. A dangling link is still described as a link. */
  followLinks: nullish(boolean),
  sandbox,
  /** Default: true. False rejects symbolic links among the directories of the path. `self` then describes a link itself. */
  followSymlinks,
}));
export const scanResult = object("FsScanResult", () => ({
  /** The path itself, with an empty name. Links are followed unless `followSymlinks` is false. */
  self: scannedEntry,
  /** Entries of a directory in the byte order of their names; empty for other paths. */
  entries: array(scannedEntry),
  /** Whether further entries follow the last one. */
  more: boolean,
}));
/** Absent attributes stay unchanged; a new file gets the server's defaults. */
const attributes = { mode: nullish(i32), modifiedAtMs: nullish(f64) };
export const writeAtomicParams = object("FsPutParams", () => ({
  path: pathUri,
  /** Content of the file; absent for a symbolic link. */
  chunk: nullish(bytes),
  /** Percent-encoded target of the symbolic link; absent for a file. */
  target: nullish(string),
  ...attributes,
  sandbox,
  followSymlinks,
}));
export const setAttributesParams = object("FsSetAttributesParams", () => ({
  path: pathUri,
  ...attributes,
  sandbox,
  followSymlinks,
}));
export const openPartialParams = object("FsOpenPartParams", () => ({ handleId: id, path: pathUri, followSymlinks }));
export const openPartialResult = object("FsOpenPartResult", () => ({
  /** Bytes already in the partial file; 0 for a new one. */
  size: u64,
}));
export const checksumParams = object("FsChecksumParams", () => ({
  handleId: id,
  /** Number of bytes from the start of the file. */
  length: u64,
  /** 16 random bytes per copy. Selects AES-128-GMAC, which is faster than SHA-256, for this file handle. */
  gmacKey: nullish(bytes),
}));
export const checksumResult = object("FsChecksumResult", () => ({
  /** In hexadecimal. Null if the file is shorter than `length`. */
  digest: nullable(string),
}));
export const commitParams = object("FsCommitParams", () => ({
  handleId: id,
  /** Final path of the file, on the same file system. */
  path: pathUri,
  /** Expected size. On a mismatch of size or digest the request fails and the partial file stays. */
  size: u64,
  /** Digest of the source: SHA-256, or GMAC if an `fs/checksum` of this file handle selected it. */
  digest: string,
  ...attributes,
  followSymlinks,
}));
