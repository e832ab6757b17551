import { invalidParams, invalidRequest, type RequestError } from "./errors.ts";

/**
 * Paths on the wire are `file:` URIs. A path is bytes, so the exact form is a byte array; most callers want the text
 * form, which refuses the few paths that are not UTF-8.
 *
 * Two kinds of refusal, as the protocol tells them apart: what is not a path URI at all fails while decoding
 * (-32602); a well-formed URI of some other host or of a Windows drive fails when it is used (-32600 for files).
 */
export function pathFromUri(uri: string): string {
  const bytes = pathBytesFromUri(uri);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw foreignPath(normalizePathUri(uri));
  }
}

/** The same for a process's working directory, whose refusal is worded for the caller of `process/start`. */
export function cwdFromUri(uri: string): string {
  try {
    return pathFromUri(uri);
  } catch (error) {
    if (!isForeignPath(error)) throw error;
    const normal = normalizePathUri(uri);
    throw invalidParams(`cwd URI \`${normal}\` is not valid on this exec-server host: ${error.message}`);
  }
}

/** The path's bytes, for names that are not UTF-8. */
export function pathBytesFromUri(uri: string): Uint8Array {
  const url = parse(uri);
  if (url.host !== "" || WINDOWS_DRIVE.test(url.pathname)) throw foreignPath(normal(url));
  const bytes = percentDecode(url.pathname);
  if (bytes.includes(0)) throw invalidParams(notOnThisHost(normal(url)));
  return bytes;
}

/** Checks that `uri` decodes as a path URI and gives its normal form; it may still name another host. */
export function normalizePathUri(uri: string): string {
  return normal(parse(uri));
}

/** A native absolute path as a URI; bytes that a URI cannot carry as they are get percent-encoded. */
export function uriFromPath(path: string | Uint8Array): string {
  const bytes = typeof path === "string" ? new TextEncoder().encode(path) : path;
  let text = "";
  for (const byte of bytes) {
    const char = String.fromCharCode(byte);
    text += byte > 0x20 && byte < 0x7f && !MUST_ENCODE.has(char) ? char : percentEncoded(byte);
  }
  // A top directory called `c:` is a name here, not a drive.
  if (WINDOWS_DRIVE.test(text)) text = `/${text.charAt(1)}%3A${text.slice(3)}`;
  return `file://${text}`;
}

/** One name, or the text of a link, as it stands in a URI: every byte survives. */
export function encodePathText(text: string | Uint8Array): string {
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  const rooted = new Uint8Array(bytes.length + 1);
  rooted.set([0x2f]);
  rooted.set(bytes, 1);
  return uriFromPath(rooted).slice("file:///".length);
}

/** The inverse of `encodePathText`; refuses what no path can hold. */
export function decodePathText(text: string): Uint8Array {
  const bytes = percentDecode(text);
  if (bytes.length === 0 || bytes.includes(0)) throw invalidParams(`\`${text}\` is no path`);
  return bytes;
}

const MUST_ENCODE = new Set('"#%<>?`\\^{|}');
const WINDOWS_DRIVE = /^\/[A-Za-z]:(\/|$)/;
const HAS_SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*:/;
/** What the URL standard drops around a URL: C0 controls and spaces. */
const LEADING_BLANKS = /^[\u0000-\u0020]+/;

function parse(uri: string): URL {
  let url: URL;
  try {
    url = new URL(uri);
  } catch (cause) {
    const why = HAS_SCHEME.test(uri.replace(LEADING_BLANKS, ""))
      ? "invalid international domain name"
      : "relative URL without a base";
    throw invalidParams(`invalid URI: ${why}`, { cause });
  }
  if (url.protocol !== "file:") {
    throw invalidParams(`unsupported path URI scheme \`${url.protocol.slice(0, -1)}\``);
  }
  // `search` and `hash` are empty for a bare `?` or `#`, which are refused all the same.
  const beforeFragment = url.href.split("#", 1)[0] ?? "";
  if (beforeFragment.includes("?")) throw invalidParams("query parameters are not allowed in path URIs");
  if (url.href.includes("#")) throw invalidParams("fragments are not allowed in path URIs");
  return url;
}

function normal(url: URL): string {
  const drive = WINDOWS_DRIVE.test(url.pathname);
  const path = drive ? `/${url.pathname.charAt(1).toUpperCase()}${url.pathname.slice(2)}` : url.pathname;
  return `file://${url.host}${path}`;
}

function percentDecode(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length);
  let length = 0;
  for (let at = 0; at < text.length; at++) {
    const hex = text.charCodeAt(at) === 0x25 ? text.slice(at + 1, at + 3) : "";
    if (/^[0-9A-Fa-f]{2}$/.test(hex)) {
      bytes[length++] = Number.parseInt(hex, 16);
      at += 2;
    } else {
      bytes[length++] = text.charCodeAt(at);
    }
  }
  return bytes.subarray(0, length);
}

function percentEncoded(byte: number): string {
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

/** The name upstream gives the system; a browser, which never resolves such a path itself, counts as Linux. */
function hostOs(): string {
  const platform = typeof process === "undefined" ? "linux" : process.platform;
  return platform === "darwin" ? "macos" : platform === "win32" ? "windows" : platform;
}
