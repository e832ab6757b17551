import type { RestoredProcess } from "../../exec/backend/persistent-process.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import { ErrorCode, invalidRequest, RequestError, SESSION_TAKEN_OVER_MESSAGE } from "../../protocol/errors.ts";
import { canAccess, type Principal } from "../auth/principal.ts";
import { ShareTokens } from "../auth/share-tokens.ts";
import { generationHint } from "../lifecycle/server-generation.ts";
import { type ServerSessionDeps, Session } from "./session.ts";
import type { SessionClient } from "./session-process.ts";
import { SharedProcess } from "./shared-process.ts";

type RegistryDeps = Omit<ServerSessionDeps, "onEnded" | "ownerId" | "number">;

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

  open(principal: Principal, attachment: SessionClient): Session {
    return this.#add(this.#newId(), principal.id, attachment);
  }

  #add(id: string, ownerId: string, attachment: SessionClient | null): Session {
    const session = new Session(id, attachment, {
      ...this.#deps,
      ownerId,
      number: ++this.#opened,
      onEnded: (ended) => void this.#sessions.delete(ended.id),
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
    if (isReleased) {
      this.#deps.background.add(shared);
      return;
    }
    const session = this.#sessions.get(sessionId) ?? this.#add(sessionId, ownerId, null);
    session.restore(restored, shared);
  }

  /**
   * Resumes a detached session, or takes over a connected one if the policy allows it. Treats a session of another
   * principal as unknown, so that session ids cannot be probed.
   */
  resume(id: string, principal: Principal, attachment: SessionClient, policy: TakeoverPolicy): Session {
    const session = this.#sessions.get(id);
    if (!session || !canAccess(principal, session.ownerId))
      throw invalidRequest(`unknown session id ${id}${this.#generationHint(attachment.extensions.size > 0)}`);
    const former = session.attachment;
    const isOwn = policy.type === "own";
    if (isOwn && policy.attachmentId !== session.attachmentId)
      throw new RequestError(ErrorCode.sessionAttached, `session ${id} ${SESSION_TAKEN_OVER_MESSAGE}`, {
        reason: "sessionTakenOver",
      });
    if (former && policy.type === "detached") {
      throw new RequestError(ErrorCode.sessionAttached, `session ${id} is already attached to another connection`);
    }
    session.attach(attachment, isOwn ? "same" : "another");
    // A client's own connections may arrive in another order than it opened them. The reason of the close differs,
    // because the client reconnects if it was its own connection, but not after a takeover.
    former?.peer.close(
      isOwn ? "session was resumed on another connection of its client" : `session ${SESSION_TAKEN_OVER_MESSAGE}`,
    );
    return session;
  }

  /** Returns the processes that the principal may see. An operator gets those of all principals, with their owners. */
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
    return processes.map((shared) =>
      principal.role === "operator" ? { ...shared.listing(), principal: shared.ownerId } : shared.listing(),
    );
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
