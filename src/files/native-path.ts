import { isUtf8 } from "node:buffer";
import { pathBytesFromUri, uriFromPath } from "../protocol/path-uri.ts";

/** A path of this machine: text where it is UTF-8, else its bytes. `node:fs` takes either. */
export type NativePath = string | Buffer;

export function nativePathFromUri(uri: string): NativePath {
  return nativeFromBytes(Buffer.from(pathBytesFromUri(uri)));
}

export function uriFromNativePath(path: NativePath): string {
  return uriFromPath(path);
}

export function nativeFromBytes(bytes: Buffer): NativePath {
  return isUtf8(bytes) ? bytes.toString("utf8") : bytes;
}

/** A name as `node:fs` gives it with the encoding `latin1`: one character a byte, so nothing is lost. */
export function nativeFromLatin1(name: string): NativePath {
  return isAscii(name) ? name : nativeFromBytes(Buffer.from(name, "latin1"));
}

export function joinNative(directory: NativePath, name: NativePath): NativePath {
  if (typeof directory === "string" && typeof name === "string") {
    return directory.endsWith("/") ? directory + name : `${directory}/${name}`;
  }
  const head = Buffer.from(directory);
  const slash = head.at(-1) === SLASH ? "" : "/";
  return nativeFromBytes(Buffer.concat([head, Buffer.from(slash), Buffer.from(name)]));
}

/** The names of an absolute path, from the root down; none for the root itself. */
export function pathNames(path: NativePath): NativePath[] {
  if (typeof path === "string") return path.split("/").filter((name) => name !== "");
  return path
    .toString("latin1")
    .split("/")
    .filter((name) => name !== "")
    .map(nativeFromLatin1);
}

/** The directory an absolute path is in; the root is its own. */
export function parentOf(path: NativePath): NativePath {
  const text = typeof path === "string" ? path : path.toString("latin1");
  const parent = text.replace(/\/+$/, "").replace(/[^/]*$/, "") || "/";
  return typeof path === "string" ? parent : nativeFromLatin1(parent);
}

/** For people: bytes that are no UTF-8 show as replacement characters. */
export function displayPath(path: NativePath): string {
  return path.toString();
}

const SLASH = 0x2f;

function isAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) > 0x7f) return false;
  return true;
}
