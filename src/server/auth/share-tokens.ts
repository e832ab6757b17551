import type { Clock } from "../../async/clock.ts";
import { isLive } from "../../exec/backend/process-state.ts";
import type { ShareEntry, ShareResult } from "../../exec/exec-process.ts";
import { invalidParams, invalidRequest, SHARE_CLOSE_REASONS } from "../../protocol/errors.ts";
import { principalLimit } from "../principal-quotas.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { Principal, ShareGrant } from "./principal.ts";
import { randomBytes } from "./random-bytes.ts";
import { sha256 } from "./sha256.ts";

/** One week. Longer access needs a separate principal. */
export const MAX_SHARE_MS = 7 * 24 * 3600_000;
/** Maximum number of share tokens per server, so that they cannot exhaust its memory. */
const MAX_SHARES = 1000;
/** Maximum number of share tokens per principal, so that one principal cannot use all of them. */
export const MAX_SHARES_PER_PRINCIPAL = 250;
/** The quota is the same on a server with one principal. */
const SEVERAL = { hasSeveralPrincipals: true };
const SECRET_BYTES = 24;
/** Distinguishes a share token from other tokens. */
const PREFIX = "share-";

interface IssuedToken {
  principal: Principal & { share: ShareGrant };
  shared: SharedProcess;
  createdAtMs: number;
  expiresAtMs: number;
  /** Functions that close the connections which use the token. */
  connections: Set<(reason: string) => void>;
  /** Removes the listener of the creator's credential. */
  release: () => void;
}

export interface ShareRequest {
  role: ShareGrant["role"];
  ttlMs: number;
  /** Principal that creates the share token, which ends with the principal's own token. */
  createdBy: Principal;
}

/** Tokens that grant access to one process each. The server stores only their digests and never logs them. */
export class ShareTokens {
  readonly #clock: Clock;
  /** Keyed by digest, oldest first. */
  readonly #issued = new Map<string, IssuedToken>();
  #count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  issue(shared: SharedProcess, { role, ttlMs, createdBy }: ShareRequest): ShareResult {
    if (ttlMs < 1 || ttlMs > MAX_SHARE_MS) throw invalidParams(`ttlMs must be between 1 and ${MAX_SHARE_MS} (a week)`);
    if (!isLive(shared.process)) throw invalidRequest(`process ${shared.handle} has ended and cannot be shared`);
    this.#purgeExpired();
    const own = [...this.#issued.values()].filter(({ principal }) => principal.share.createdBy === createdBy.id);
    const others = this.#issued.size - own.length;
    if (own.length >= principalLimit(SEVERAL, MAX_SHARES, others, MAX_SHARES_PER_PRINCIPAL))
      throw invalidRequest(
        `too many shares: ${createdBy.id} has ${own.length} at once; revoke one with process/revokeShare first`,
      );
    if (this.#issued.size >= MAX_SHARES)
      throw invalidRequest(`too many shares: this server has ${MAX_SHARES} at once; wait until one expires`);
    const token = `${PREFIX}${Buffer.from(randomBytes(SECRET_BYTES)).toString("base64url")}`;
    const digest = digestOf(token);
    const createdAtMs = this.#clock.now();
    const { credential } = createdBy;
    const validMs = Math.min(ttlMs, (credential?.expiresAtMs ?? Number.POSITIVE_INFINITY) - createdAtMs);
    const release = credential ? credential.onEnd(() => this.#revoke(digest)) : () => undefined;
    if (!release) throw invalidRequest("the token of this connection has ended; connect with a new token");
    const share: ShareGrant = {
      handle: shared.handle,
      role,
      createdBy: createdBy.id,
      expiresAtMs: this.#clock.monotonic() + validMs,
    };
    const principal = { id: `share:${++this.#count}`, role: "user", share } as const;
    const expiresAtMs = createdAtMs + validMs;
    const connections = new Set<(reason: string) => void>();
    this.#issued.set(digest, { principal, shared, createdAtMs, expiresAtMs, connections, release });
    return { token, expiresAtMs, shareId: principal.id };
  }

  /** Returns the valid tokens of a process, oldest first. */
  list(includes: (shared: SharedProcess) => boolean): ShareEntry[] {
    this.#purgeExpired();
    return [...this.#issued.values()]
      .filter(({ shared }) => includes(shared))
      .map(({ principal, shared, createdAtMs, expiresAtMs, connections }) => ({
        shareId: principal.id,
        handle: shared.handle,
        role: principal.share.role,
        createdAtMs,
        expiresAtMs,
        principal: principal.share.createdBy,
        connections: connections.size,
      }));
  }

  /** Invalidates a token and closes the connections that use it. Returns false if the process has no such token. */
  revoke(shared: SharedProcess, shareId: string): boolean {
    this.#purgeExpired();
    for (const [digest, issued] of this.#issued) {
      if (issued.shared !== shared || issued.principal.id !== shareId) continue;
      this.#revoke(digest);
      return true;
    }
    return false;
  }

  /** Registers a connection of a guest; `close` is called when its token is revoked. Returns a function that removes it. */
  onConnected(principal: Principal, close: (reason: string) => void): () => void {
    const issued = [...this.#issued.values()].find((candidate) => candidate.principal === principal);
    if (!issued) {
      close(SHARE_CLOSE_REASONS.revoked);
      return () => undefined;
    }
    issued.connections.add(close);
    return () => void issued.connections.delete(close);
  }

  /** Returns the principal of a share token, or null if the token is unknown or expired. */
  principalOf(token: string): Principal | null {
    this.#purgeExpired();
    return this.#issued.get(digestOf(token))?.principal ?? null;
  }

  #revoke(digest: string): void {
    const issued = this.#remove(digest);
    for (const close of [...(issued?.connections ?? [])]) close(SHARE_CLOSE_REASONS.revoked);
  }

  #remove(digest: string): IssuedToken | undefined {
    const issued = this.#issued.get(digest);
    this.#issued.delete(digest);
    issued?.release();
    return issued;
  }

  #purgeExpired(): void {
    const now = this.#clock.monotonic();
    for (const [digest, { principal, shared }] of this.#issued)
      if (principal.share.expiresAtMs <= now || !isLive(shared.process)) this.#remove(digest);
  }
}

export function isShareToken(token: string): boolean {
  return token.startsWith(PREFIX);
}

function digestOf(token: string): string {
  return sha256(token).toString("base64");
}
