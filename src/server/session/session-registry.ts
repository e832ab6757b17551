import type { RestoredProcess } from "../../exec/backend/persistent-process.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import { ErrorCode, invalidRequest, RequestError, SESSION_TAKEN_OVER_MESSAGE } from "../../protocol/errors.ts";
import { canAccess, type Principal, quotaOwner } from "../auth/principal.ts";
import { ShareTokens } from "../auth/share-tokens.ts";
import { scopeKey } from "../auth/token-scope.ts";
import { generationHint } from "../lifecycle/server-generation.ts";
import type { PrincipalQuotas } from "../principal-quotas.ts";
import { type ServerSessionDeps, Session } from "./session.ts";
import type { SessionClient } from "./session-process.ts";
import { SharedProcess } from "./shared-process.ts";

type RegistryDeps = Omit<ServerSessionDeps, "onEnded" | "ownerId" | "ownerScope" | "number"> & {
  quotas: PrincipalQuotas;
};

/** Condition for resuming a session. */
export type TakeoverPolicy =
  /** Only if the session has no connection. */
  | { type: "detached" }
  /** Always. The session's current connection is closed. */
  | { type: "always" }
  /** Only if this client had the session last. A connection of the session is then the client's own. */
  | { type: "own"; attachmentId: string };

/** All sessions of a server, connected or detached, with their owners. */
export class SessionRegistry {
  readonly #sessions = new Map<string, Session>();
  readonly #deps: RegistryDeps;
  readonly #newId: () => string;
  /** Share tokens of this server's processes. */
  readonly shares: ShareTokens;
  #opened = 0;

  constructor(deps: RegistryDeps, newId: () => string) {
    this.#deps = deps;
    this.#newId = newId;
    this.shares = new ShareTokens(deps.clock);
  }

  /** Evicts output of detached sessions, oldest session first, while `isNeeded` returns true. */
  evictDetached(isNeeded: () => boolean): void {
    for (const session of this.#sessions.values()) if (isNeeded()) session.evictDetached(isNeeded);
  }

  /** Throws a RequestError if the principal has as many sessions as its quota allows. */
  open(principal: Principal, client: SessionClient): Session {
    const release = this.#deps.quotas.acquire(quotaOwner(principal), "sessions");
    return this.#add(this.#newId(), principal.id, client, release, scopeKey(principal.credential?.scope));
  }

  #add(
    id: string,
    ownerId: string,
    client: SessionClient | null,
    release: () => void,
    ownerScope: string | null = null,
  ): Session {
    const session = new Session(id, client, {
      ...this.#deps,
      ownerId,
      ownerScope,
      number: ++this.#opened,
      onEnded: (ended) => {
        this.#sessions.delete(ended.id);
        release();
      },
    });
    this.#sessions.set(id, session);
    return session;
  }

  /** Restores a persistent process of the previous server, together with its session. */
  restore(restored: RestoredProcess): void {
    const { process, owner, isReleased, terminalQueries, recordInput } = restored;
    const { sessionId, ownerId, handle } = owner;
    const shared = new SharedProcess(process, {
      handles: this.#deps.handles,
      ownerId,
      lifetime: "persistent",
      handle,
      terminalQueries,
      recordsInput: recordInput ?? false,
    });
    const { name, running } = process.listing();
    if (name !== undefined && running) this.#deps.names.reserve(ownerId, name, handle).releaseAtExit(process);
    if (isReleased) {
      this.#deps.background.add(shared);
      return;
    }
    const session =
      this.#sessions.get(sessionId) ??
      this.#add(sessionId, ownerId, null, this.#deps.quotas.restore(ownerId, "sessions"));
    session.restore(restored, shared);
  }

  /**
   * Resumes a detached session, or takes over a connected one if the policy allows it. Treats a session of another
   * principal as unknown, so that session ids cannot be probed.
   */
  resume(id: string, principal: Principal, client: SessionClient, policy: TakeoverPolicy): Session {
    const session = this.#sessions.get(id);
    const scope = scopeKey(principal.credential?.scope);
    // Through a session of another scope, a token could use processes that its own scope does not confine.
    if (!session || !canAccess(principal, session.ownerId) || (scope !== null && scope !== session.ownerScope))
      throw invalidRequest(`unknown session id ${id}${this.#generationHint(client.extensions.size > 0)}`);
    const former = session.client;
    const isOwn = policy.type === "own";
    if (isOwn && policy.attachmentId !== session.attachmentId)
      throw new RequestError(ErrorCode.sessionAttached, `session ${id} ${SESSION_TAKEN_OVER_MESSAGE}`, {
        reason: "sessionTakenOver",
      });
    if (former && policy.type === "detached") {
      throw new RequestError(ErrorCode.sessionAttached, `session ${id} is already attached to another connection`);
    }
    session.attach(client, isOwn ? "same" : "another");
    // A client's own connections may arrive in another order than it opened them. The reason of the close differs,
    // because the client reconnects if it was its own connection, but not after a takeover.
    former?.peer.close(
      isOwn ? "session was resumed on another connection of its client" : `session ${SESSION_TAKEN_OVER_MESSAGE}`,
    );
    return session;
  }

  /** Returns the processes that the principal may see, with their owners. An operator gets those of all principals. */
  listAll(principal: Principal): ProcessListing[] {
    if (principal.share) {
      const shared = this.#deps.handles.find(principal.share.handle);
      return shared ? [shared.listing()] : [];
    }
    const isVisible = ({ ownerId }: { ownerId: string }) => canAccess(principal, ownerId);
    const sessions = [...this.#sessions.values()].filter(isVisible);
    const processes = [
      ...sessions.flatMap((session) => session.ownProcesses()),
      ...this.#deps.background.all().filter(isVisible),
    ];
    return processes.map((shared) => ({ ...shared.listing(), principal: shared.ownerId }));
  }

  /** Returns the process with this handle. One of another principal is unknown, so that handles cannot be probed. */
  findProcess(handle: string, principal: Principal, isExtended: boolean): SharedProcess {
    const shared = this.#deps.handles.find(handle);
    const isShared = principal.share?.handle === handle;
    if (!shared || !(isShared || canAccess(principal, shared.ownerId)))
      throw invalidRequest(`unknown handle ${handle}${this.#generationHint(isExtended)}`, {
        reason: "unknownHandle",
      });
    return shared;
  }

  get questions(): ServerSessionDeps["questions"] {
    return this.#deps.questions;
  }

  get generation(): string {
    return this.#deps.generation;
  }

  /** Returns the hint for clients with extensions. Other clients get the text of the Codex exec-server. */
  #generationHint(isExtended: boolean): string {
    return isExtended ? `; ${generationHint(this.#deps.generation)}` : "";
  }

  get size(): number {
    return this.#sessions.size;
  }

  closeAll(): void {
    for (const session of [...this.#sessions.values()]) session.end();
    this.#deps.background.releaseAll();
  }
}
