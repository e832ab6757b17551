import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { CHAIN_START, type ChainPosition, type DecodedLine, decodeLine, digestOf } from "./audit-chain.ts";

interface VerifyOptions {
  /** Files of one log in the order in which the server wrote them. */
  files: readonly string[];
  /** Digest of a line that must be in the files. A file without it was cut or changed. */
  lastDigest?: string | undefined;
  /** File with the lines of the second sink, with or without syslog headers. */
  sinkFile?: string | undefined;
}

type VerifyResult =
  | { type: "valid"; lines: number; firstSeq: number; last: ChainPosition }
  /** The first line that is wrong. `line` is its number in `file`, from 1. */
  | { type: "invalid"; file: string; line: number; reason: string };

/** A line with its place. */
interface PlacedLine {
  file: string;
  line: number;
  bytes: Buffer;
  /** Null if it is not a line of an audit log. */
  decoded: DecodedLine | null;
}

class InvalidLine extends Error {
  readonly at: { file: string; line: number };

  constructor(at: { file: string; line: number }, reason: string) {
    super(reason);
    this.at = at;
  }
}

/**
 * Checks that no line of an audit log was changed, removed, duplicated or moved. Without `lastDigest` and `sinkFile`, a
 * missing end and a changed last line go unnoticed. Rejects if a file cannot be read.
 */
export async function verifyAuditLog({ files, lastDigest, sinkFile }: VerifyOptions): Promise<VerifyResult> {
  const sinkLine = sinkFile === undefined ? null : await readLastSinkLine(sinkFile);
  let hasLastDigest = lastDigest === undefined || lastDigest === CHAIN_START.digest;
  let hasSinkLine = sinkLine === null;
  let first: DecodedLine | null = null;
  let former: { place: PlacedLine; decoded: DecodedLine } | null = null;
  let lines = 0;
  const end: { file: string; line: number } = { file: files.at(-1) ?? "", line: 1 };
  try {
    for await (const [place, next, afterNext] of withLookahead(readLines(files))) {
      Object.assign(end, { file: place.file, line: place.line });
      if (isFragment(place, next)) continue;
      const { decoded } = place;
      if (!decoded) throw new InvalidLine(place, "not a line of an audit log: changed, or incomplete");
      const follower = isFragment(next, afterNext) ? afterNext : next;
      if (former) checkSuccessor(former, { place, decoded }, follower ? follower.decoded?.prev : lastDigest);
      else if (decoded.seq === 1 && decoded.prev !== CHAIN_START.digest)
        throw new InvalidLine(place, "the first line of the log has a predecessor: it was changed");
      first ??= decoded;
      former = { place, decoded };
      lines++;
      hasLastDigest ||= decoded.digest === lastDigest;
      if (sinkLine && decoded.seq === sinkLine.seq) {
        if (place.bytes.toString("utf8") !== sinkLine.text)
          throw new InvalidLine(place, `line with seq ${decoded.seq} differs from the line in ${sinkFile}`);
        hasSinkLine = true;
      }
    }
    if (!first || !former) throw new InvalidLine(end, "there is no line");
    if (!hasSinkLine)
      throw new InvalidLine(
        end,
        `the log ends at seq ${former.decoded.seq}, but ${sinkFile} has seq ${sinkLine?.seq}: lines are missing`,
      );
    if (!hasLastDigest)
      throw new InvalidLine(end, `no line has the digest ${lastDigest}: the end was cut, or the last line changed`);
    const { seq, digest } = former.decoded;
    return { type: "valid", lines, firstSeq: first.seq, last: { seq, digest } };
  } catch (error) {
    if (!(error instanceof InvalidLine)) throw error;
    const { file, line } = error.at;
    return { type: "invalid", file, line, reason: error.message };
  }
}

/** Throws unless `current` follows `former` in the chain. `ownDigest` is the recorded digest of `current`, if there is one. */
function checkSuccessor(
  former: { place: PlacedLine; decoded: DecodedLine },
  current: { place: PlacedLine; decoded: DecodedLine },
  ownDigest: string | undefined,
): void {
  const { seq, prev, digest } = current.decoded;
  const expected = former.decoded.seq + 1;
  if (seq === expected && prev === former.decoded.digest) return;
  if (digest === former.decoded.digest) throw new InvalidLine(current.place, `seq ${seq} is duplicated`);
  // Its recorded digest shows which of the two lines was changed.
  const isIntact = ownDigest === undefined || ownDigest === digest;
  if (seq === expected && isIntact)
    throw new InvalidLine(
      former.place,
      `seq ${former.decoded.seq} was changed: its digest differs from \`prev\` of seq ${seq}`,
    );
  if (seq === expected) throw new InvalidLine(current.place, `seq ${seq} was changed`);
  if (seq > expected)
    throw new InvalidLine(current.place, `lines are missing before seq ${seq}: expected seq ${expected}`);
  throw new InvalidLine(
    current.place,
    `lines are out of order or duplicated: expected seq ${expected}, found seq ${seq}`,
  );
}

/** Reports whether a line is incomplete and the next line, a `log/fragment`, has its digest. */
function isFragment(place: PlacedLine | null, next: PlacedLine | null): boolean {
  const fragmentDigest = next?.decoded?.fragmentDigest;
  return place !== null && fragmentDigest !== undefined && fragmentDigest === digestOf(place.bytes);
}

const LINE_FEED = 0x0a;

async function* readLines(files: readonly string[]): AsyncGenerator<PlacedLine> {
  for (const file of files) {
    let line = 0;
    let rest: Buffer = Buffer.alloc(0);
    // A file stream without an encoding yields buffers.
    for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
      let bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED)) {
        const text = bytes.subarray(0, end);
        yield { file, line: ++line, bytes: text, decoded: decodeLine(text) };
        bytes = bytes.subarray(end + 1);
      }
      rest = bytes;
    }
    // A line without a line break is incomplete even if it is valid JSON.
    if (rest.length > 0) yield { file, line: ++line, bytes: rest, decoded: null };
  }
}

async function* withLookahead<T>(source: AsyncIterable<T>): AsyncGenerator<[T, T | null, T | null]> {
  const window: T[] = [];
  for await (const item of source) {
    window.push(item);
    const [first, second, third] = window;
    if (first === undefined || second === undefined || third === undefined) continue;
    yield [first, second, third];
    window.shift();
  }
  for (const [at, item] of window.entries()) yield [item, window[at + 1] ?? null, null];
}

/** Returns the last line of the sink's file. Throws if it has none. */
async function readLastSinkLine(path: string): Promise<{ seq: number; text: string }> {
  const lines = (await readFile(path, "utf8")).split("\n");
  for (const line of lines.reverse()) {
    // A receiver of syslog adds a header in front of the JSON text.
    const text = line.slice(Math.max(0, line.indexOf('{"seq":')));
    const decoded = decodeLine(Buffer.from(text));
    if (decoded) return { seq: decoded.seq, text };
  }
  throw new Error(`read ${path}: the file contains no line of an audit log`);
}
