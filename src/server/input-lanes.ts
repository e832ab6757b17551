import { Lanes } from "../async/keyed-queue.ts";
import type { StraightWay } from "../connection/straight-way.ts";
import type { HostProcess } from "../exec/host-backend.ts";

/**
 * How input comes to a session's processes. There are two ways. On the ordered one the start, writes, closeStdin and
 * resizes of one process wait for each other. On the straight one the connection takes writes to the process by itself.
 * The straight way is open only while nothing of that process is under way on the ordered one, so nothing overtakes.
 */
export class InputLanes {
  readonly #lanes = new Lanes<string>();
  /** Of the processes that have started and can be written to straight. */
  readonly #inputs = new Map<string, object>();
  #way: StraightWay | null = null;

  /** Input comes by this connection from now on, or by none. */
  follow(way: StraightWay | null): void {
    for (const processId of this.#inputs.keys()) this.#way?.shut(processId);
    this.#way = way;
    for (const processId of this.#inputs.keys()) this.#openStraight(processId);
  }

  started({ processId, straightInput }: HostProcess): void {
    if (straightInput === null) return;
    this.#inputs.set(processId, straightInput);
    this.#openStraight(processId);
  }

  /** All input comes by the ordered way from now on. */
  forget(processId: string): void {
    this.#inputs.delete(processId);
    this.#way?.shut(processId);
  }

  /** The id is free: whatever is next called so does not wait for calls of this one, which may wait for long. */
  leave(processId: string): void {
    this.forget(processId);
    this.#lanes.leave(processId);
  }

  /** Runs one of the calls that keep their order for a process. */
  async inOrder<T>(processId: string, task: () => Promise<T>): Promise<T> {
    this.#way?.shut(processId);
    try {
      return await this.#lanes.run(processId, task);
    } finally {
      this.#openStraight(processId);
    }
  }

  #openStraight(processId: string): void {
    const input = this.#inputs.get(processId);
    if (input !== undefined && !this.#lanes.busy(processId)) this.#way?.open(processId, input);
  }
}
