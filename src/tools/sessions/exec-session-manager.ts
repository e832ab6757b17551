import type { Clock } from "../../async/clock.ts";
import type { TaskSet } from "../../async/task-set.ts";
import type { ExecProcess } from "../../exec/exec-process.ts";
import type { ArchiveShelf } from "../output/output-archive-store.ts";
import type { EventFeed } from "./exec-events.ts";
import type { SessionCommand } from "./exec-session.ts";
import { ExecSession } from "./exec-session.ts";
import type { SessionTable } from "./exec-session-table.ts";

export interface KeeperDeps {
  attachUrl: string | null;
  clock: Clock;
  feed: EventFeed;
  shelf: ArchiveShelf;
  sessions: SessionTable;
  tasks: TaskSet;
}

/** Owns every session from its start to its last event, also those no model can name any more. */
export class SessionKeeper {
  readonly #deps: KeeperDeps;
  readonly #kept = new Set<ExecSession>();
  #closed = false;

  constructor(deps: KeeperDeps) {
    this.#deps = deps;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Begins to follow a process under a number; a session that is evicted for it is ended. */
  async open(sessionId: number, process: ExecProcess, command: SessionCommand): Promise<ExecSession> {
    const { attachUrl, clock, feed, shelf, sessions, tasks } = this.#deps;
    const archive = await shelf.open(sessionId);
    const session = new ExecSession(sessionId, process, command, { attachUrl, clock, feed, archive });
    this.#kept.add(session);
    tasks.run(async () => {
      await session.follow();
      this.#kept.delete(session);
    });
    tasks.run(async () => {
      await session.ended;
      if (shelf.get(sessionId) === archive) await shelf.ended(sessionId);
    });
    const evicted = sessions.add(session);
    if (evicted) tasks.run(() => evicted.stop("evicted"));
    // It was still starting when everything else was ended.
    if (this.#closed) await session.stop("closed");
    return session;
  }

  /** Ends the sessions that run, and stops following those whose streams are held open by another process. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#kept].map((session) => session.stop("closed")));
    for (const session of this.#kept) session.letGo();
    await this.#deps.tasks.settled();
  }
}
