/** Longest head that is read here. */
const MAX_BYTES = 4096;
/** A strict subset of what the HTTP parser of Node accepts. */
const HEAD = /^CONNECT ([\w.:[\]-]+) HTTP\/1\.1\r\n((?:[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e]*\r\n)*)\r\n$/;
/** Headers that affect the end of a request. */
const FRAMING = /^(?:content-length|transfer-encoding|expect|upgrade):/im;
const END = "\r\n\r\n";

/** The head of a CONNECT request, and its length in bytes. */
interface ConnectHead {
  target: string;
  length: number;
}

/**
 * Reads the head of a CONNECT request from the first bytes of a connection, without an HTTP parser: its objects are a third of
 * the memory of a tunnel. Returns null for everything else, incomplete or unusual: the parser decides about it.
 */
export function readConnectHead(bytes: Buffer): ConnectHead | null {
  const end = bytes.subarray(0, MAX_BYTES).indexOf(END);
  if (end < 0) return null;
  const length = end + END.length;
  const [, target, headers = ""] = HEAD.exec(bytes.toString("latin1", 0, length)) ?? [];
  return target === undefined || FRAMING.test(headers) ? null : { target, length };
}
