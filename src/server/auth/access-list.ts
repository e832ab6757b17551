import type { AccessEntry } from "../../protocol/attach-schemas.ts";
import { ACCESS_REVOKED_MESSAGE } from "../../protocol/errors.ts";
import { canAccess, type Principal } from "./principal.ts";

/** An open connection, or a console session. */
export interface Access {
  kind: AccessEntry["kind"];
  principal: Principal;
  /** Address of the peer. Empty for a console session; its connections are listed separately. */
  peer: string;
  /** `user-agent` of the browser. Empty for a connection. */
  device: string;
  /** By the wall clock, for display. */
  sinceMs: number;
  lastUsedAtMs: () => number;
  expiresAtMs?: number | undefined;
  close: (reason: string) => void;
}

/** Open connections and console sessions of a server. */
export class AccessList {
  /** Keyed by number, oldest first. */
  readonly #accesses = new Map<number, Access>();
  #count = 0;

  /** Adds an access. Returns the function that removes it. */
  add(access: Access): () => void {
    const number = ++this.#count;
    this.#accesses.set(number, access);
    return () => void this.#accesses.delete(number);
  }

  /** Returns the accesses that the principal may see. An operator sees all. */
  list(principal: Principal, isCurrent: (access: Access) => boolean): AccessEntry[] {
    return [...this.#accesses]
      .filter(([, access]) => isVisible(access, principal))
      .map(([number, access]) => ({
        accessId: idOf(number, access),
        kind: access.kind,
        principal: access.principal.id,
        peer: access.peer,
        device: access.device,
        sinceMs: access.sinceMs,
        lastUsedAtMs: access.lastUsedAtMs(),
        expiresAtMs: access.expiresAtMs ?? access.principal.credential?.expiresAtMs,
        tokenId: access.principal.credential?.tokenId,
        isCurrent: isCurrent(access),
      }));
  }

  /** Ends an access. Returns false if the principal sees no such access. */
  revoke(principal: Principal, accessId: string): boolean {
    for (const [number, access] of this.#accesses) {
      if (idOf(number, access) !== accessId || !isVisible(access, principal)) continue;
      this.#accesses.delete(number);
      access.close(ACCESS_REVOKED_MESSAGE);
      return true;
    }
    return false;
  }
}

const idOf = (number: number, { kind }: Access) => `${kind}:${number}`;

/** The creator of a share link also sees the guests of the link. */
function isVisible({ principal: { id, share } }: Access, viewer: Principal): boolean {
  return canAccess(viewer, share?.createdBy ?? id);
}
