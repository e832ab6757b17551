import { isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { pathBytesFromUri } from "../protocol/path-uri.ts";

/** A local path: a string if it is UTF-8, otherwise its bytes. `node:fs` accepts both. */
export type NativePath = string | Buffer;

export function nativePathFromUri(uri: string): NativePath {
  return nativeFromBytes(Buffer.from(pathBytesFromUri(uri)));
}

export function nativeFromBytes(bytes: Buffer): NativePath {
  return isUtf8(bytes) ? bytes.toString("utf8") : bytes;
}

/** Converts a name that `node:fs` returned in the encoding `latin1`: one character per byte, so nothing is lost. */
export function nativeFromLatin1(name: string): NativePath {
  return isAscii(name) ? name : nativeFromBytes(Buffer.from(name, "latin1"));
}

/** Returns one character per byte, so that paths that are not UTF-8 differ too. */
export function latin1Path(path: NativePath): string {
  return Buffer.from(path).toString("latin1");
}

export function joinNative(directory: NativePath, name: NativePath): NativePath {
  if (typeof directory === "string" && typeof name === "string") {
    return directory.endsWith("/") ? directory + name : `${directory}/${name}`;
  }
  const head = Buffer.from(directory);
  const slash = head.at(-1) === SLASH ? "" : "/";
  return nativeFromBytes(Buffer.concat([head, Buffer.from(slash), Buffer.from(name)]));
}

/** Returns the names of an absolute path from the root down; empty for the root. */
export function pathNames(path: NativePath): NativePath[] {
  if (typeof path === "string") return path.split("/").filter((name) => name !== "");
  return path
    .toString("latin1")
    .split("/")
    .filter((name) => name !== "")
    .map(nativeFromLatin1);
}

/** Returns the parent directory of an absolute path; the root is its own parent. */
function parentOf(path: NativePath): NativePath {
  const text = typeof path === "string" ? path : path.toString("latin1");
  const parent = text.replace(/\/+$/, "").replace(/[^/]*$/, "") || "/";
  return typeof path === "string" ? parent : nativeFromLatin1(parent);
}

/** Returns a temporary path in the same directory, for a file that replaces `path` when it is complete. */
export function siblingPath(path: NativePath): NativePath {
  return joinNative(parentOf(path), temporaryName());
}

/** Returns a random name for a file that is renamed once it is complete. */
export function temporaryName(): string {
  return `.procwire-${randomBytes(9).toString("hex")}.tmp`;
}

/** Returns the path for messages; bytes that are not UTF-8 become replacement characters. */
export function displayPath(path: NativePath): string {
  return path.toString();
}

const SLASH = 0x2f;

function isAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) > 0x7f) return false;
  return true;
}
