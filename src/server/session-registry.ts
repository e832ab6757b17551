import type { ProcessListing } from "../exec/exec-process.ts";
import { ErrorCode, invalidRequest, RequestError } from "../protocol/errors.ts";
import { Session, type SessionDeps } from "./session.ts";
import type { Attachment } from "./session-process.ts";

/** All sessions of a server, attached or waiting to be resumed. */
export class SessionRegistry {
  readonly #sessions = new Map<string, Session>();
  readonly #deps: Omit<SessionDeps, "onOver">;
  readonly #newId: () => string;

  constructor(deps: Omit<SessionDeps, "onOver">, newId: () => string) {
    this.#deps = deps;
    this.#newId = newId;
  }

  open(attachment: Attachment): Session {
    const session = new Session(this.#newId(), attachment, {
      ...this.#deps,
      onOver: (over) => void this.#sessions.delete(over.id),
    });
    this.#sessions.set(session.id, session);
    return session;
  }

  /** Attaches to a session that lost its connection; with `takeOver` also to one that still has it. */
  resume(id: string, attachment: Attachment, takeOver: boolean): Session {
    const session = this.#sessions.get(id);
    if (!session) throw invalidRequest(`unknown session id ${id}`);
    const former = session.attachment;
    if (former && !takeOver) {
      throw new RequestError(
        ErrorCode.sessionAttached,
        `session ${id} is already attached to another connection`,
      );
    }
    session.attach(attachment);
    former?.peer.close("session was taken over by another connection");
    return session;
  }

  /** The processes of every session. */
  listAll(): ProcessListing[] {
    return [...this.#sessions.values()].flatMap((session) =>
      session.listings().map((listing) => ({ ...listing, sessionId: session.id })),
    );
  }

  get size(): number {
    return this.#sessions.size;
  }

  endAll(): void {
    for (const session of [...this.#sessions.values()]) session.end();
  }
}
