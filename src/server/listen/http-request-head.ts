/** The parts of an HTTP request head that the gateway needs. */
export interface RequestHead {
  method: string;
  /** Path without the query string. */
  path: string;
  /** Keyed by lower-case name. Values of a repeated header are joined with a comma. */
  headers: ReadonlyMap<string, string>;
}

export type ParsedHead =
  | { type: "incomplete" }
  | { type: "head"; head: RequestHead; rest: Buffer }
  | { type: "refused"; status: 400 | 431 | 505; reason: string };

/** The default of node:http. */
export const MAX_HEAD_BYTES = 16 * 1024;

/** Parses the request head. Strict about syntax, because the head decides who may run commands on this host. */
export function parseRequestHead(bytes: Buffer): ParsedHead {
  const end = bytes.indexOf("\r\n\r\n");
  if (end > MAX_HEAD_BYTES || (end < 0 && bytes.length > MAX_HEAD_BYTES)) {
    return refusal(431, `the request head is longer than ${MAX_HEAD_BYTES} bytes`);
  }
  // A TLS client waits for a response, so waiting for the end of the head would hang.
  if (bytes.length > 0 && !NAME.test(bytes.toString("latin1", 0, 1)))
    return refusal(400, "this is not an HTTP request; a client that speaks TLS needs a server with --tls-cert");
  if (end < 0) return { type: "incomplete" };
  const [first = "", ...lines] = bytes.toString("latin1", 0, end).split("\r\n");
  const request = REQUEST_LINE.exec(first);
  if (!request) return refusal(400, "the request line is not `METHOD /path HTTP/1.1`");
  const [, method = "", target = "", version] = request;
  if (version !== "1.1" && version !== "1.0") return refusal(505, "only HTTP/1.1 is supported");
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase();
    const value = trimBlanks(line, colon + 1);
    if (!NAME.test(name) || !VALUE.test(value)) return refusal(400, "a header line is not `name: value`");
    const before = headers.get(name);
    if (before !== undefined && SINGLE.has(name)) return refusal(400, `the header ${name} is given twice`);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const [path = "/"] = target.split("?", 1);
  return { type: "head", head: { method, path, headers }, rest: bytes.subarray(end + 4) };
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) ([!-~]+) HTTP\/(\d\.\d)$/;
const NAME = /^[!#$%&'*+.^_`|~\w-]+$/;
const VALUE = /^[\t -~\x80-\xff]*$/;
/** Headers that must not repeat: two parsers of one request could choose different values. */
const SINGLE: ReadonlySet<string> = new Set(["host", "origin", "authorization", "sec-websocket-key"]);

function refusal(status: 400 | 431 | 505, reason: string): ParsedHead {
  return { type: "refused", status, reason };
}

/** Trims spaces and tabs. A pattern would backtrack on inner blanks, and trim() removes more than blanks. */
function trimBlanks(line: string, from: number): string {
  let end = line.length;
  while (from < end && isBlank(line, from)) from++;
  while (end > from && isBlank(line, end - 1)) end--;
  return line.slice(from, end);
}

function isBlank(line: string, at: number): boolean {
  return line[at] === " " || line[at] === "\t";
}

/** Reports whether a comma-separated header contains a token. */
export function headerHasToken(head: RequestHead, name: string, word: string): boolean {
  const words = head.headers.get(name)?.split(",") ?? [];
  return words.some((found) => found.trim().toLowerCase() === word);
}
