import type { WriteStatus } from "../../exec/exec-process.ts";
import type { InputActor } from "./input-history.ts";
import type { InputRouter } from "./input-router.ts";
import type { SessionProcess } from "./session-process.ts";
import type { SessionProcessTable } from "./session-process-table.ts";

export interface SessionInputDeps {
  processes: SessionProcessTable;
  router: InputRouter;
  /** Returns the session and its current client for the input history. */
  actor: () => Omit<InputActor, "role">;
}

/** The ordered input of a session: writes, resizes and closes of stdin, one at a time per process. */
export class SessionInput {
  readonly #deps: SessionInputDeps;

  constructor(deps: SessionInputDeps) {
    this.#deps = deps;
  }

  /**
   * Runs a call in order with the other calls for this process. The id is resolved when the call arrives. The task gets
   * null if there is no such process, its start failed, or the session has removed it before the call runs. A start that
   * arrives later is queued behind the call, so the call does not wait for it. Throws if this session is a viewer.
   */
  runInOrder<T>(processId: string, task: (entry: SessionProcess | null) => Promise<T>): Promise<T> {
    const { processes, router } = this.#deps;
    const found = processes.find(processId);
    return router.runInOrder(processId, async () => {
      const entry = found instanceof Promise ? await found : found;
      if (!entry || !processes.has(entry)) return task(null);
      entry.requireWritable();
      return task(entry);
    });
  }

  /** Writes input and adds it to the input history. */
  write(processId: string, chunk: Uint8Array, writeId: string | undefined): Promise<{ status: WriteStatus }> {
    return this.runInOrder(processId, async (entry) => {
      if (!entry) return { status: "unknownProcess" };
      const { process } = entry;
      const echoedBefore = process.ttyState()?.echo ?? true;
      const writing = process.writeRaw(chunk, { writeId });
      const echo = echoedBefore && (process.ttyState()?.echo ?? true);
      const { status, isDuplicate, isFlushed = false } = await writing;
      if (status === "accepted" && entry.role === "owner") entry.shared.queryArbiter?.inputWritten();
      if (status === "accepted" && !isDuplicate) {
        const role = entry.role === "owner" ? "owner" : "driver";
        const input = { bytes: chunk.length, echo, chunk: echo && isFlushed ? chunk : null };
        entry.shared.recordInput({ ...this.#deps.actor(), role }, input);
      }
      return { status };
    });
  }
}
