/** The head of an HTTP request, as far as a server that only upgrades and answers a few paths needs it. */
export interface RequestHead {
  method: string;
  /** Without its query. */
  path: string;
  /** Names in lower case. A header given twice has both values, joined with a comma. */
  headers: ReadonlyMap<string, string>;
}

export type ParsedHead =
  | { type: "incomplete" }
  | { type: "head"; head: RequestHead; rest: Buffer }
  | { type: "refused"; status: 400 | 431 | 505; reason: string };

/** As node:http allows by default. */
export const MAX_HEAD_BYTES = 16 * 1024;

/** Looks whether the head is whole; strict about its form, because it decides who may run commands here. */
export function parseHead(bytes: Buffer): ParsedHead {
  const end = bytes.indexOf("\r\n\r\n");
  if (end > MAX_HEAD_BYTES || (end < 0 && bytes.length > MAX_HEAD_BYTES)) {
    return refused(431, `the request head is longer than ${MAX_HEAD_BYTES} bytes`);
  }
  // A peer that begins with TLS waits for an answer, not for the end of a head that never comes.
  if (bytes.length > 0 && !NAME.test(bytes.toString("latin1", 0, 1)))
    return refused(
      400,
      "this is not an HTTP request; a client that speaks TLS needs a server with --tls-cert",
    );
  if (end < 0) return { type: "incomplete" };
  const [first = "", ...lines] = bytes.toString("latin1", 0, end).split("\r\n");
  const request = REQUEST_LINE.exec(first);
  if (!request) return refused(400, "the request line is not `METHOD /path HTTP/1.1`");
  const [, method = "", target = "", version] = request;
  if (version !== "1.1" && version !== "1.0") return refused(505, "only HTTP/1.1 is supported");
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase();
    const value = withoutBlanks(line, colon + 1);
    if (!NAME.test(name) || !VALUE.test(value)) return refused(400, "a header line is not `name: value`");
    const before = headers.get(name);
    if (before !== undefined && SINGLE.has(name)) return refused(400, `the header ${name} is given twice`);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const [path = "/"] = target.split("?", 1);
  return { type: "head", head: { method, path, headers }, rest: bytes.subarray(end + 4) };
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) ([!-~]+) HTTP\/(\d\.\d)$/;
const NAME = /^[!#$%&'*+.^_`|~\w-]+$/;
const VALUE = /^[\t -~\x80-\xff]*$/;
/** Two of these would let two readers of one request believe different things. */
const SINGLE: ReadonlySet<string> = new Set(["host", "origin", "authorization", "sec-websocket-key"]);

function refused(status: 400 | 431 | 505, reason: string): ParsedHead {
  return { type: "refused", status, reason };
}

/** By hand: a pattern for blanks that may stand within a value too tries each of them anew, and trim() takes more than blanks. */
function withoutBlanks(line: string, from: number): string {
  let end = line.length;
  while (from < end && isBlank(line, from)) from++;
  while (end > from && isBlank(line, end - 1)) end--;
  return line.slice(from, end);
}

function isBlank(line: string, at: number): boolean {
  return line[at] === " " || line[at] === "\t";
}

/** Whether a header that is a list of words has this one. */
export function hasWord(head: RequestHead, name: string, word: string): boolean {
  const words = head.headers.get(name)?.split(",") ?? [];
  return words.some((found) => found.trim().toLowerCase() === word);
}
