import { KeyedQueue } from "../../async/keyed-queue.ts";
import type { DirectInput } from "../../connection/connection.ts";
import type { SharedProcess } from "./shared-process.ts";

/** The properties of a process that decide between direct and ordered input. */
export type RoutedProcess = Pick<SharedProcess, "terminalQueries" | "recordsInput" | "isShared"> & {
  readonly process: Pick<SharedProcess["process"], "directInput">;
};

/**
 * Decides between direct and ordered input for the processes of a session. With ordered input, the start, writes, resizes
 * and the close of stdin of one process run in JavaScript, one after the other. With direct input, the native addon copies
 * writes from the socket to the process. `#findDirectInput` lists every condition for direct input.
 */
export class InputRouter {
  readonly #isAudited: boolean;
  readonly #queues = new KeyedQueue<string>();
  /** Started processes of this session, without attached ones, by process id. */
  readonly #processes = new Map<string, RoutedProcess>();
  #connection: DirectInput | null = null;

  constructor(options: { isAudited: boolean }) {
    this.#isAudited = options.isAudited;
  }

  /** Sets the connection of the session. Null while it has none, or its handshake is not complete. */
  setConnection(connection: DirectInput | null): void {
    for (const processId of this.#processes.keys()) this.#connection?.unroute(processId);
    this.#connection = connection;
    for (const processId of this.#processes.keys()) this.#enableDirectInput(processId);
  }

  /** Adds a process that this session has started. */
  add(processId: string, process: RoutedProcess): void {
    this.#processes.set(processId, process);
    this.#enableDirectInput(processId);
  }

  /** Frees the id. The next process with this id does not wait for pending calls of this one, which may take long. */
  remove(processId: string): void {
    this.#processes.delete(processId);
    this.#connection?.unroute(processId);
    this.#queues.forget(processId);
  }

  /** Checks the conditions for direct input again. Called when one may have changed. */
  update(processId: string): void {
    this.#connection?.unroute(processId);
    this.#enableDirectInput(processId);
  }

  /** Runs a call in order with the other calls for this process. Disables direct input meanwhile. */
  async runInOrder<T>(processId: string, task: () => Promise<T>): Promise<T> {
    this.#connection?.unroute(processId);
    try {
      return await this.#queues.run(processId, task);
    } finally {
      this.#enableDirectInput(processId);
    }
  }

  #enableDirectInput(processId: string): void {
    const input = this.#findDirectInput(processId);
    if (input) this.#connection?.route(processId, input);
  }

  /** Returns the input that the connection may write to directly, or null if input must be ordered. */
  #findDirectInput(processId: string): object | null {
    // The session is detached, or its client has not completed the handshake.
    if (!this.#connection) return null;
    // A process that this session attached to needs a role check for every write.
    const process = this.#processes.get(processId);
    if (!process) return null;
    // Every write must leave an audit line.
    if (this.#isAudited) return null;
    // Terminal queries: the server must see each write, which may be the client's terminal reply.
    // Ordered input is fast enough, because such a process has a user at its terminal.
    if (process.terminalQueries !== undefined) return null;
    // Input recording needs the bytes.
    if (process.recordsInput) return null;
    // While viewers or drivers are attached, the input history must name the writer of each input.
    if (process.isShared) return null;
    // A direct write must not overtake a pending call.
    if (this.#queues.isBusy(processId)) return null;
    return process.process.directInput;
  }
}
