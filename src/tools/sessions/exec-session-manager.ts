import type { TaskSet } from "../../async/task-set.ts";
import type { ExecProcess } from "../../exec/exec-process.ts";
import type { OutputArchiveStore } from "../output/output-archive-store.ts";
import { ExecSession, type ExecSessionCommand, type ExecSessionDeps } from "./exec-session.ts";
import type { ExecSessionTable } from "./exec-session-table.ts";

export interface ExecSessionManagerDeps extends Omit<ExecSessionDeps, "archive"> {
  archives: OutputArchiveStore;
  sessions: ExecSessionTable;
  tasks: TaskSet;
}

/** Owns every exec session until its last event, including evicted ones. */
export class ExecSessionManager {
  readonly #deps: ExecSessionManagerDeps;
  readonly #sessions = new Set<ExecSession>();
  /** Set by `close`. */
  isClosed = false;

  constructor(deps: ExecSessionManagerDeps) {
    this.#deps = deps;
  }

  /** Creates an exec session for a process. Ends a session that is evicted for it. */
  async open(sessionId: number, process: ExecProcess, command: ExecSessionCommand): Promise<ExecSession> {
    const { archives, sessions, tasks } = this.#deps;
    const archive = await archives.open(sessionId);
    const session = new ExecSession(sessionId, process, command, { ...this.#deps, archive });
    this.#sessions.add(session);
    tasks.run(async () => {
      await session.follow();
      this.#sessions.delete(session);
    });
    tasks.run(async () => {
      await session.ended;
      if (archives.get(sessionId) === archive) await archives.markEnded(sessionId);
    });
    const evicted = sessions.add(session);
    if (evicted) tasks.run(() => evicted.stop("evicted"));
    // `close` was called while the process was starting.
    if (this.isClosed) await session.stop("closed");
    return session;
  }

  /** Ends running sessions and releases exited sessions with streams that another process holds open. */
  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.all([...this.#sessions].map((session) => session.stop("closed")));
    for (const session of this.#sessions) session.release();
    await this.#deps.tasks.settled();
  }
}
