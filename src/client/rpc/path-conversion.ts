import { latin1 } from "../../base/bytes.ts";
import { decodeValidUtf8 } from "../../base/text/utf8.ts";
import { invalidParams, ProtocolError } from "../../protocol/errors.ts";
import { encodePathText, pathBytesFromUri, pathFromUri, percentDecode, uriFromPath } from "../../protocol/path-uri.ts";

/** Converts a native absolute path to a `file:` URI; a URI stays as it is. */
export function toPathUri(path: string, what = "path"): string {
  if (/^file:/i.test(path)) return path;
  if (!path.startsWith("/")) throw invalidParams(`${what} \`${path}\` must be an absolute path or a file: URI`);
  return uriFromPath(path);
}

/** Returns a URI if the caller passed a URI, otherwise a native path. */
export function inCallerForm(callerPath: string, uri: string): string {
  return /^file:/i.test(callerPath) ? uri : pathFromUri(uri);
}

/**
 * Returns the path of an entry of a directory, by its name as `fs/scan` gives it: a native path where the name is UTF-8,
 * else a URI. Throws for a name that would lead out of the directory.
 */
export function joinEntry(directory: string, name: string): string {
  const bytes = decodeEntryName(name, directory);
  const parent = directory.replace(/\/$/, "");
  if (/^file:/i.test(directory)) return `${parent}/${encodePathText(bytes)}`;
  const text = decodeValidUtf8(bytes);
  return text === null ? `${uriFromPath(directory).replace(/\/$/, "")}/${encodePathText(bytes)}` : `${parent}/${text}`;
}

/**
 * Splits a path into a directory and the encoded names below it. Without `within` the directory is the parent. The root
 * is its own parent. Throws unless `path` is `within` or below it.
 */
export function splitPath(path: string, within?: string): [directory: string, names: string[]] {
  const isUri = /^file:/i.test(path);
  const directory = (within ?? path.slice(0, path.lastIndexOf("/") + 1)).replace(/\/*$/, "/");
  if (!`${path}/`.startsWith(directory)) throw invalidParams(`\`${path}\` is not below \`${within}\``);
  const names = path.slice(directory.length).split("/");
  return [directory, names.filter((name) => name !== "").map((name) => (isUri ? name : encodePathText(name)))];
}

/**
 * Returns a function for the entry names of one directory, as a server sends them. It returns a name in its normal
 * encoding, and throws unless the name is a single path component that occurs once.
 */
export function entryNormalizer(directory: string): (name: string) => string {
  const seen = new Set<string>();
  return (name) => {
    const normal = encodePathText(decodeEntryName(name, directory));
    if (seen.has(normal)) throw invalidName(name, directory, "the name occurs twice");
    seen.add(normal);
    return normal;
  };
}

/** Throws unless a server's name, which is not percent-encoded, is a single path component. */
export function checkEntryName(name: string, directory: string): void {
  checkComponent(new TextEncoder().encode(name), name, directory);
}

/** Throws unless a URI that a server sends leads below the directory's URI. */
export function checkBelow(directoryUri: string, uri: string): void {
  const directory = latin1(pathBytesFromUri(directoryUri)).replace(/\/*$/, "/");
  const path = latin1(pathBytesFromUri(uri));
  const isBelow = path.startsWith(directory);
  for (const name of path.slice(directory.length).split("/"))
    if (!isBelow || findProblem(name) !== null)
      throw new ProtocolError(`the server sent an invalid path \`${uri}\`: not below \`${directoryUri}\``);
}

function decodeEntryName(name: string, directory: string): Uint8Array {
  const bytes = percentDecode(name);
  checkComponent(bytes, name, directory);
  return bytes;
}

function checkComponent(bytes: Uint8Array, name: string, directory: string): void {
  const problem = findProblem(latin1(bytes));
  if (problem !== null) throw invalidName(name, directory, problem);
}

/** Returns why a name, as Latin-1 text, is not a single path component; null for a valid name. */
function findProblem(name: string): string | null {
  if (name === "") return "the name is empty";
  if (name === "." || name === "..") return "the name leads out of the directory";
  if (name.includes("/")) return "the name contains a slash";
  return name.includes("\0") ? "the name contains a NUL byte" : null;
}

function invalidName(name: string, directory: string, problem: string): ProtocolError {
  return new ProtocolError(`the server sent an invalid name \`${name}\` for an entry of \`${directory}\`: ${problem}`);
}
