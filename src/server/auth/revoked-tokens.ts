import {
  appendFileSync,
  closeSync,
  fstatSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { type Clock, systemClock } from "../../async/clock.ts";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { parseObject } from "../../base/json-fields.ts";

/** Maximum size of the file, about 300,000 tokens. */
const MAX_FILE_BYTES = 32 * 1024 * 1024;

/** Maximum length of a token id, so that a line stays short. */
export const MAX_TOKEN_ID_CHARS = 512;

/** Age after which the lock of a crashed server is removed. */
const STALE_LOCK_MS = 60_000;

/**
 * Ids of revoked tokens, in a file with one JSON object per line. Several servers, and `procwire token revoke`, may share
 * the file. An id stays in memory until its token has expired, also if the file is deleted or damaged. An id without an
 * expiry stays forever.
 */
export class RevokedTokens {
  readonly path: string;
  /** Why the file cannot be written, or null. Its ids count also then. */
  readonly unwritableReason: string | null;
  readonly #clock: Pick<Clock, "now">;
  /** End of validity of each token, including the tolerated clock skew. Null: unknown, so that the id stays forever. */
  readonly #expiries = new Map<string, number | null>();

  /** Creates the file if it is missing, so that a sandbox can mask it. Throws if it cannot be read. */
  constructor(path: string, clock: Pick<Clock, "now"> = systemClock) {
    this.path = path;
    this.#clock = clock;
    this.unwritableReason = tryCreate(path);
    this.refresh();
    if (this.unwritableReason === null) removeExpiredLines(path, clock.now());
  }

  /** Number of ids in memory. */
  get size(): number {
    return this.#expiries.size;
  }

  has(tokenId: string): boolean {
    return this.#expiries.has(tokenId);
  }

  /** Adds an id, first in the file. Throws if the file cannot be written. */
  add(tokenId: string, by: string, expiresAtMs: number | undefined): void {
    appendRevokedToken(this.path, { tokenId, by, nowMs: this.#clock.now(), expiresAtMs });
    this.#set(tokenId, expiresAtMs ?? null);
    this.#prune();
  }

  /** Reads the file again, and removes the ids of expired tokens. Reports whether there are new ids. */
  refresh(): boolean {
    const nowMs = this.#clock.now();
    let hasNew = false;
    for (const { tokenId, expiresAtMs } of readRevocations(this.path)) {
      if (isExpired(expiresAtMs, nowMs)) continue;
      hasNew ||= !this.#expiries.has(tokenId);
      this.#set(tokenId, expiresAtMs);
    }
    this.#prune();
    return hasNew;
  }

  /** The latest expiry counts: issuers may use an id twice. */
  #set(tokenId: string, expiresAtMs: number | null): void {
    const known = this.#expiries.get(tokenId);
    if (known === null) return;
    this.#expiries.set(tokenId, expiresAtMs === null ? null : Math.max(expiresAtMs, known ?? expiresAtMs));
  }

  #prune(): void {
    const nowMs = this.#clock.now();
    for (const [tokenId, expiresAtMs] of this.#expiries)
      if (isExpired(expiresAtMs, nowMs)) this.#expiries.delete(tokenId);
  }
}

const isExpired = (expiresAtMs: number | null, nowMs: number) => expiresAtMs !== null && expiresAtMs <= nowMs;

function tryCreate(path: string): string | null {
  try {
    closeSync(openSync(path, "a", 0o600));
    return null;
  } catch (error) {
    return errorMessage(error);
  }
}

interface Revocation {
  tokenId: string;
  /** Principal, or user, that revokes the token. */
  by: string;
  nowMs: number;
  /** End of validity, including the tolerated clock skew. Undefined: unknown. */
  expiresAtMs?: number | undefined;
}

/** Appends a line and waits until it is on the disk. */
export function appendRevokedToken(path: string, { tokenId, by, nowMs, expiresAtMs }: Revocation): void {
  const expiresAt = expiresAtMs === undefined ? undefined : new Date(expiresAtMs).toISOString();
  const line = JSON.stringify({ tokenId, revokedAt: new Date(nowMs).toISOString(), by, expiresAt });
  let isReplaced: boolean;
  do {
    const fd = openSync(path, "a", 0o600);
    try {
      // A line break first: an interrupted write may have left an incomplete line.
      appendFileSync(fd, `\n${line}\n`);
      fsyncSync(fd);
      // A server that removes expired lines replaces the file, and copies only lines that precede the replacement.
      isReplaced = fstatSync(fd).ino !== statSync(path, { throwIfNoEntry: false })?.ino;
    } finally {
      closeSync(fd);
    }
  } while (isReplaced);
}

interface RevokedLine {
  tokenId: string;
  /** End of validity, or null if the line has no expiry. */
  expiresAtMs: number | null;
  line: string;
}

/** Returns the lines of a file. A missing file has none. */
function readRevocations(path: string): RevokedLine[] {
  try {
    return parseLines(path, readFileSync(path, "utf8"));
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return [];
    throw new Error(`cannot read revoked tokens ${path}: ${errorMessage(error)}`, { cause: error });
  }
}

/** Ignores empty and unreadable lines, which an interrupted write leaves. */
function parseLines(path: string, text: string): RevokedLine[] {
  if (text.length > MAX_FILE_BYTES)
    throw new Error(`${path} is larger than ${MAX_FILE_BYTES} bytes; remove expired tokens`);
  return text.split("\n").flatMap((line) => {
    const { tokenId, expiresAt } = parseObject(line) ?? {};
    if (typeof tokenId !== "string") return [];
    return [{ tokenId, expiresAtMs: typeof expiresAt === "string" ? parseTime(expiresAt) : null, line }];
  });
}

function parseTime(text: string): number | null {
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? null : ms;
}

/**
 * Replaces the file by one without expired lines, if at least half of the lines are expired. Lines that another server or
 * command appends meanwhile are kept. A file that cannot be replaced stays, because its expired lines do no harm.
 */
function removeExpiredLines(path: string, nowMs: number): void {
  const lockPath = `${path}.lock`;
  const newPath = `${path}.new`;
  try {
    const lines = readRevocations(path);
    const valid = lines.filter(({ expiresAtMs }) => !isExpired(expiresAtMs, nowMs));
    if (valid.length === lines.length || valid.length > lines.length / 2) return;
    closeSync(openSync(lockPath, "wx", 0o600));
    const former = openSync(path, "r");
    try {
      const first = readFileSync(former, "utf8");
      const kept = parseLines(path, first).filter(({ expiresAtMs }) => !isExpired(expiresAtMs, nowMs));
      writeFileSync(newPath, kept.map(({ line }) => `${line}\n`).join(""), { mode: 0o600, flush: true });
      renameSync(newPath, path);
      // Commands that opened the former file before it was replaced may have appended to it.
      const late = readFileSync(former, "utf8");
      if (late !== "") appendFileSync(path, `\n${late}`);
    } finally {
      closeSync(former);
      rmSync(lockPath, { force: true });
    }
  } catch {
    const lock = statSync(lockPath, { throwIfNoEntry: false });
    if (lock && Date.now() - lock.mtimeMs > STALE_LOCK_MS) rmSync(lockPath, { force: true });
  }
}
