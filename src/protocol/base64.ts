/**
 * Strict base64: standard alphabet, required padding, no white space, no stray bits in the last symbol.
 * Uses Node's Buffer if available, because it is many times faster, otherwise the browser's `atob`.
 */

/** The members of Node's Buffer that this module uses. Buffer is absent in browsers. */
interface BufferLike {
  from(text: string, encoding: "base64"): Uint8Array;
  from(bytes: ArrayBufferLike, offset: number, length: number): { toString(encoding: "base64"): string };
}

const NodeBuffer = (globalThis as { Buffer?: BufferLike }).Buffer;

export function encodeBase64(bytes: Uint8Array): string {
  if (NodeBuffer) return NodeBuffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
  let binary = "";
  // fromCharCode takes bytes as arguments. 8192 stays below the argument limit of every engine.
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(binary);
}

/** A base64 string of a large message that another thread found to be invalid. Takes the place of the string. */
export class InvalidBase64 {
  readonly problem: string;
  /** Nothing is retained of the string. */
  readonly length = 0;

  constructor(problem: string) {
    this.problem = problem;
  }
}

/** Base64 as a message contains it. Another thread decodes that of a large message. */
export type Base64Text = string | Uint8Array | InvalidBase64;

export type Base64Decoded = { ok: true; bytes: Uint8Array } | { ok: false; problem: string };

/** Decodes strictly. Returns a problem as a value, with the text that Codex uses. Returns bytes as they are. */
export function decodeBase64(text: Base64Text): Base64Decoded {
  if (text instanceof Uint8Array) return { ok: true, bytes: text };
  if (text instanceof InvalidBase64) return { ok: false, problem: text.problem };
  const bytes = decodeLeniently(text);
  if (bytes && bytes.length === expectedLength(text) && isCanonicalEnd(text.slice(-4), bytes))
    return { ok: true, bytes };
  return { ok: false, problem: findProblem(text) };
}

function decodeLeniently(text: string): Uint8Array | null {
  if (text.length % 4 !== 0) return null;
  if (NodeBuffer) return text.includes("-") || text.includes("_") ? null : NodeBuffer.from(text, "base64");
  try {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
    return bytes;
  } catch {
    return null;
  }
}

/** Returns the decoded length of valid text. Lenient decoders skip invalid symbols, which makes the result shorter. */
function expectedLength(text: string): number {
  if (text.length === 0) return 0;
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return (text.length / 4) * 3 - padding;
}

/** Reports whether the last four symbols of a text have no stray bits. `bytes` are the decoded text. */
export function isCanonicalEnd(symbols: string, bytes: Uint8Array): boolean {
  if (!symbols.endsWith("=")) return true;
  return encodeBase64(bytes.subarray(bytes.length - (bytes.length % 3))) === symbols;
}

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function findProblem(text: string): string {
  const body = text.replace(/={1,2}$/, "");
  for (let at = 0; at < body.length; at++) {
    if (!ALPHABET.includes(body.charAt(at))) return `Invalid symbol ${text.charCodeAt(at)}, offset ${at}.`;
  }
  if (text.length % 4 !== 0 || body.length % 4 === 1) return "Invalid padding";
  return `Invalid last symbol ${body.charCodeAt(body.length - 1)}, offset ${body.length - 1}.`;
}
