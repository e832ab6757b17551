import { decodeValidUtf8 } from "../base/text/utf8.ts";
import { invalidParams, invalidRequest, type RequestError } from "./errors.ts";

/**
 * Converts a `file:` URI to a path. Paths are bytes; this text form rejects the few paths that are not UTF-8.
 *
 * The protocol distinguishes two errors. Text that is not a path URI fails during decoding (-32602). A well-formed URI
 * of another host or of a Windows drive fails when it is used (-32600 for files).
 */
export function pathFromUri(uri: string): string {
  const plainPath = PLAIN_URI.exec(uri)?.[1];
  if (plainPath !== undefined) return plainPath;
  const path = decodeValidUtf8(pathBytesFromUri(uri));
  if (path === null) throw foreignPath(normalizePathUri(uri));
  return path;
}

/** Converts the URI of a working directory. Errors mention `cwd` for the caller of `process/start`. */
export function cwdFromUri(uri: string): string {
  try {
    return pathFromUri(uri);
  } catch (error) {
    if (!isForeignPath(error)) throw error;
    const normal = normalizePathUri(uri);
    throw invalidParams(`cwd URI \`${normal}\` is not valid on this exec-server host: ${error.message}`);
  }
}

/** Returns the bytes of the path, including names that are not UTF-8. */
export function pathBytesFromUri(uri: string): Uint8Array {
  const url = parse(uri);
  if (url.host !== "" || WINDOWS_DRIVE.test(url.pathname)) throw foreignPath(toNormalForm(url));
  const bytes = percentDecode(url.pathname);
  if (bytes.includes(0)) throw invalidParams(notOnThisHost(toNormalForm(url)));
  return bytes;
}

/** Returns the normal form of a path URI, which may name another host. Throws if `uri` is not a path URI. */
export function normalizePathUri(uri: string): string {
  return PLAIN_URI.test(uri) ? uri : toNormalForm(parse(uri));
}

/** Converts a native absolute path to a URI. Percent-encodes reserved and non-ASCII bytes. */
export function uriFromPath(path: string | Uint8Array): string {
  // Most paths need no encoding.
  if (typeof path === "string" && PLAIN_PATH.test(path)) return `file://${path}`;
  const bytes = typeof path === "string" ? new TextEncoder().encode(path) : path;
  let text = "";
  for (const byte of bytes) {
    const char = String.fromCharCode(byte);
    text += byte > 0x20 && byte < 0x7f && !MUST_ENCODE.has(char) ? char : percentEncode(byte);
  }
  // On this host, a top-level directory `c:` is a name, not a drive.
  if (WINDOWS_DRIVE.test(text)) text = `/${text.charAt(1)}%3A${text.slice(3)}`;
  return `file://${text}`;
}

/** Percent-encodes a file name or link target without losing a byte. */
export function encodePathText(text: string | Uint8Array): string {
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  const rooted = new Uint8Array(bytes.length + 1);
  rooted.set([0x2f]);
  rooted.set(bytes, 1);
  return uriFromPath(rooted).slice("file:///".length);
}

/** Inverse of `encodePathText`. Rejects empty text and NUL bytes, which no path contains. */
export function decodePathText(text: string): Uint8Array {
  const bytes = percentDecode(text);
  if (bytes.length === 0 || bytes.includes(0))
    throw invalidParams(`invalid path \`${text}\`: empty or contains a NUL byte`);
  return bytes;
}

const MUST_ENCODE = new Set('"#%<>?`\\^{|}');
/** A path without reserved and non-ASCII characters, and without a colon, which a drive has. */
const PLAIN_PATH = /^[!$&-9;=@-[\]_a-z~]*$/;
/**
 * Matches the URI of a path without escapes, dot segments and empty segments. Such a URI is in normal form. Skips the URL
 * parser for the working directory of nearly every start. Each repetition takes memory of the regular expression's stack,
 * so longer paths go through the parser.
 */
const PLAIN_URI = /^file:\/\/((?:\/[A-Za-z0-9_-][A-Za-z0-9_.-]*){1,99})$/;
const WINDOWS_DRIVE = /^\/[A-Za-z]:(\/|$)/;
const HAS_SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*:/;
/** C0 controls and spaces, which the URL standard strips around a URL. */
const LEADING_BLANKS = /^[\u0000-\u0020]+/;

function parse(uri: string): URL {
  let url: URL;
  try {
    url = new URL(uri);
  } catch (cause) {
    const problem = HAS_SCHEME.test(uri.replace(LEADING_BLANKS, ""))
      ? "invalid international domain name"
      : "relative URL without a base";
    throw invalidParams(`invalid URI: ${problem}`, { cause });
  }
  if (url.protocol !== "file:") {
    throw invalidParams(`unsupported path URI scheme \`${url.protocol.slice(0, -1)}\``);
  }
  // `search` and `hash` are empty for a bare `?` or `#`, which must be rejected too.
  const beforeFragment = url.href.split("#", 1)[0] ?? "";
  if (beforeFragment.includes("?")) throw invalidParams("query parameters are not allowed in path URIs");
  if (url.href.includes("#")) throw invalidParams("fragments are not allowed in path URIs");
  return url;
}

function toNormalForm(url: URL): string {
  const drive = WINDOWS_DRIVE.test(url.pathname);
  const path = drive ? `/${url.pathname.charAt(1).toUpperCase()}${url.pathname.slice(2)}` : url.pathname;
  return `file://${url.host}${path}`;
}

/** Decodes percent-encoded text to bytes without validation. */
export function percentDecode(text: string): Uint8Array {
  // Works on UTF-8, because truncating a UTF-16 unit to its low byte would turn U+012F into a slash.
  const bytes = new TextEncoder().encode(text);
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    const high = byte === PERCENT ? hexDigit(bytes[at + 1]) : null;
    const low = high === null ? null : hexDigit(bytes[at + 2]);
    if (high === null || low === null) bytes[length++] = byte;
    else {
      bytes[length++] = high * 16 + low;
      at += 2;
    }
  }
  return bytes.subarray(0, length);
}

const PERCENT = 0x25;

/** Returns the value of an ASCII hexadecimal digit, or null. */
function hexDigit(byte: number | undefined): number | null {
  if (byte === undefined) return null;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : null;
}

function percentEncode(byte: number): string {
  return `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
}

const FOREIGN_PATH = Symbol("foreign path");

function foreignPath(uri: string): RequestError {
  return invalidRequest(notOnThisHost(uri), { cause: FOREIGN_PATH });
}

function isForeignPath(error: unknown): error is Error {
  return error instanceof Error && error.cause === FOREIGN_PATH;
}

function notOnThisHost(uri: string): string {
  return `'${uri}' is invalid on '${hostOs()}'`;
}

/** Returns the name that Codex uses for the operating system. Browsers never resolve paths and count as Linux. */
function hostOs(): string {
  const platform = typeof process === "undefined" ? "linux" : process.platform;
  return platform === "darwin" ? "macos" : platform === "win32" ? "windows" : platform;
}
