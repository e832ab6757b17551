import type { ProcessListing } from "../../exec/exec-process.ts";
import type { RestoredProcess } from "../../exec/kept-process.ts";
import { ErrorCode, invalidRequest, RequestError, TAKEN_OVER } from "../../protocol/errors.ts";
import { ShareTokens } from "../auth/share-tokens.ts";
import { notOfThis } from "../generation.ts";
import { mayUse, type Principal } from "../principal.ts";
import { Session, type SessionDeps } from "../session.ts";
import type { Attachment } from "./session-process.ts";
import { SharedProcess } from "./shared-process.ts";

interface Owned {
  readonly session: Session;
  /** The id of the principal that opened it. An operator who takes it over does not become its owner. */
  readonly ownerId: string;
}

type RegistryDeps = Omit<SessionDeps, "onOver" | "ownerId" | "number">;

/** When a connection gets a session. */
export type Claim =
  /** No other connection has it. */
  | { type: "detached" }
  /** In any case; a connection that has it is closed. */
  | { type: "always" }
  /** The client that was given this id was the last to have it: what it may still be attached by is its own old connection. */
  | { type: "own"; attachmentId: string };

/** All sessions of a server, attached or waiting to be resumed, and whose they are. */
export class SessionRegistry {
  readonly #sessions = new Map<string, Owned>();
  readonly #deps: RegistryDeps;
  readonly #newId: () => string;
  /** What lets others in to one process each. */
  readonly shares: ShareTokens;
  #opened = 0;

  constructor(deps: RegistryDeps, newId: () => string) {
    this.#deps = deps;
    this.#newId = newId;
    this.shares = new ShareTokens(deps.clock);
  }

  open(principal: Principal, attachment: Attachment): Session {
    return this.#add(this.#newId(), principal.id, attachment).session;
  }

  #add(id: string, ownerId: string, attachment: Attachment | null): Owned {
    const session = new Session(id, attachment, {
      ...this.#deps,
      ownerId,
      number: ++this.#opened,
      onOver: (over) => void this.#sessions.delete(over.id),
    });
    const owned = { session, ownerId };
    this.#sessions.set(id, owned);
    return owned;
  }

  /** Takes a process that an earlier server started, and its session with it. */
  restore(restored: RestoredProcess): void {
    const { process, owner, hasLeft, terminalQueries, recordInput } = restored;
    const { sessionId, ownerId, handle } = owner;
    const shared = new SharedProcess(process, {
      handles: this.#deps.handles,
      ownerId,
      lifetime: "kept",
      handle,
      terminalQueries,
      recordsInput: recordInput ?? false,
    });
    if (hasLeft) {
      this.#deps.held.hold(shared);
      return;
    }
    const owned = this.#sessions.get(sessionId) ?? this.#add(sessionId, ownerId, null);
    owned.session.restore(restored, shared);
  }

  /**
   * Attaches to a session that lost its connection, or, as far as the claim goes, to one that still has it. Another
   * principal's is answered like one that does not exist, so that nobody learns which ids do.
   */
  resume(id: string, principal: Principal, attachment: Attachment, claim: Claim): Session {
    const owned = this.#sessions.get(id);
    if (!owned || !mayUse(principal, owned.ownerId))
      throw invalidRequest(`unknown session id ${id}${this.#notOfThis(attachment.extensions.size > 0)}`);
    const { session } = owned;
    const former = session.attachment;
    const isOwn = claim.type === "own" && claim.attachmentId === session.attachmentId;
    if (claim.type === "own" && !isOwn)
      throw new RequestError(ErrorCode.sessionAttached, `session ${id} ${TAKEN_OVER}`);
    if (former && claim.type === "detached") {
      throw new RequestError(
        ErrorCode.sessionAttached,
        `session ${id} is already attached to another connection`,
      );
    }
    session.attach(attachment, isOwn ? "same" : "another");
    // A client's own connections may come in another order than it made them: the one it has comes back, which a client
    // that was taken over does not.
    former?.peer.close(
      isOwn ? "session was resumed on another connection of its client" : `session ${TAKEN_OVER}`,
    );
    return session;
  }

  /**
   * The processes of every session of this principal, and those that outlived theirs; for an operator those of all, with
   * whose they are.
   */
  listAll(principal: Principal): ProcessListing[] {
    if (principal.share) {
      const shared = this.#deps.handles.find(principal.share.handle);
      return shared ? [shared.listing()] : [];
    }
    const sessions = [...this.#sessions.values()].map(({ session, ownerId }) => ({
      ownerId,
      listings: () => session.listings(),
    }));
    const held = this.#deps.held.all().map((shared) => ({
      ownerId: shared.ownerId,
      listings: () => [shared.listing()],
    }));
    return [...sessions, ...held]
      .filter(({ ownerId }) => mayUse(principal, ownerId))
      .flatMap(({ listings, ownerId }) =>
        principal.role === "operator"
          ? listings().map((listing) => ({ ...listing, principal: ownerId }))
          : listings(),
      );
  }

  /** Another principal's process is answered like one that does not exist, so that nobody learns which handles do. */
  processOf(handle: string, principal: Principal, isExtended: boolean): SharedProcess {
    const shared = this.#deps.handles.find(handle);
    const isShared = principal.share?.handle === handle;
    if (!shared || !(isShared || mayUse(principal, shared.ownerId)))
      throw invalidRequest(`unknown handle ${handle}${this.#notOfThis(isExtended)}`);
    return shared;
  }

  get generation(): string {
    return this.#deps.generation;
  }

  /** Only for clients that asked for an extension: others are told what they know. */
  #notOfThis(isExtended: boolean): string {
    return isExtended ? `; ${notOfThis(this.#deps.generation)}` : "";
  }

  get size(): number {
    return this.#sessions.size;
  }

  endAll(): void {
    for (const { session } of [...this.#sessions.values()]) session.end();
    this.#deps.held.letGoOfAll();
  }
}
