import type { Clock } from "../../async/clock.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import { isLive } from "../session/process-state.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { Principal, ShareGrant } from "./principal.ts";
import { randomBytes } from "./random-bytes.ts";
import { sha256 } from "./sha256.ts";

/** One week. Longer access needs a separate principal. */
export const MAX_SHARE_MS = 7 * 24 * 3600_000;
/** Maximum number of share tokens per server, so that they cannot exhaust its memory. */
const MAX_SHARES = 1000;
const SECRET_BYTES = 24;
/** Distinguishes a share token from other tokens. */
const PREFIX = "share-";

interface IssuedToken {
  principal: Principal & { share: ShareGrant };
  shared: SharedProcess;
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

  issue(shared: SharedProcess, role: ShareGrant["role"], ttlMs: number): { token: string; expiresAtMs: number } {
    if (ttlMs < 1 || ttlMs > MAX_SHARE_MS) throw invalidParams(`ttlMs must be between 1 and ${MAX_SHARE_MS} (a week)`);
    if (!isLive(shared.process)) throw invalidRequest(`process ${shared.handle} has ended and cannot be shared`);
    this.#purgeExpired();
    if (this.#issued.size >= MAX_SHARES)
      throw invalidRequest(`too many shares: this server has ${MAX_SHARES} at once; wait until one expires`);
    const token = `${PREFIX}${Buffer.from(randomBytes(SECRET_BYTES)).toString("base64url")}`;
    const share: ShareGrant = { handle: shared.handle, role, expiresAtMs: this.#clock.monotonic() + ttlMs };
    const principal = { id: `share:${++this.#count}`, role: "user", share } as const;
    this.#issued.set(digestOf(token), { principal, shared });
    return { token, expiresAtMs: this.#clock.now() + ttlMs };
  }

  /** Returns the principal of a share token, or null if the token is unknown or expired. */
  principalOf(token: string): Principal | null {
    this.#purgeExpired();
    return this.#issued.get(digestOf(token))?.principal ?? null;
  }

  #purgeExpired(): void {
    const now = this.#clock.monotonic();
    for (const [digest, { principal, shared }] of this.#issued)
      if (principal.share.expiresAtMs <= now || !isLive(shared.process)) this.#issued.delete(digest);
  }
}

export function isShareToken(token: string): boolean {
  return token.startsWith(PREFIX);
}

function digestOf(token: string): string {
  return sha256(token).toString("base64");
}
