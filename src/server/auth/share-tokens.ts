import type { Clock } from "../../async/clock.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { Principal, Share } from "../principal.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import { randomBytes } from "./random-bytes.ts";

/** A week: longer is what a principal of one's own is for. */
export const MAX_SHARE_MS = 7 * 24 * 3600_000;
/** Of a whole server, so that nobody fills its memory with them. */
const MAX_SHARES = 1000;
const SECRET_BYTES = 24;
/** Tells a share token from any other one. */
const PREFIX = "share-";

interface Issued {
  principal: Principal & { share: Share };
  shared: SharedProcess;
}

/** Tokens that open one process each. Only their digests are kept, and nothing is ever logged. */
export class ShareTokens {
  readonly #clock: Clock;
  /** By digest, the oldest first. */
  readonly #issued = new Map<string, Issued>();
  #count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  issue(shared: SharedProcess, role: Share["role"], ttlMs: number): { token: string; expiresAtMs: number } {
    if (ttlMs < 1 || ttlMs > MAX_SHARE_MS)
      throw invalidParams(`ttlMs must be between 1 and ${MAX_SHARE_MS} (a week)`);
    if (isEnded(shared)) throw invalidRequest(`process ${shared.handle} has ended and cannot be shared`);
    this.#forgetOld();
    if (this.#issued.size >= MAX_SHARES)
      throw invalidRequest(`too many shares: this server has ${MAX_SHARES} at once; let one expire first`);
    const token = `${PREFIX}${Buffer.from(randomBytes(SECRET_BYTES)).toString("base64url")}`;
    const share: Share = { handle: shared.handle, role, untilMs: this.#clock.monotonic() + ttlMs };
    const principal = { id: `share:${++this.#count}`, role: "user", share } as const;
    this.#issued.set(digestOf(token), { principal, shared });
    return { token, expiresAtMs: this.#clock.now() + ttlMs };
  }

  /** Null: it is none, or none any more. */
  principalOf(token: string): Principal | null {
    this.#forgetOld();
    return this.#issued.get(digestOf(token))?.principal ?? null;
  }

  #forgetOld(): void {
    const now = this.#clock.monotonic();
    for (const [digest, { principal, shared }] of this.#issued)
      if (principal.share.untilMs <= now || isEnded(shared)) this.#issued.delete(digest);
  }
}

export function isShareToken(token: string): boolean {
  return token.startsWith(PREFIX);
}

function isEnded(shared: SharedProcess): boolean {
  return shared.isOver || shared.process.log.exit !== null;
}

function digestOf(token: string): string {
  return process
    .getBuiltinModule("node:crypto")
    .createHash("sha256")
    .update(token, "latin1")
    .digest("base64");
}
