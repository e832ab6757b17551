import { invalidRequest } from "../../protocol/errors.ts";
import type { HostProcess } from "./host-backend.ts";
import { onceEnded } from "./process-state.ts";

/** A name that is reserved for one process. */
export interface NameReservation {
  /** Frees the name because the process did not start. */
  release(): void;
  /** Frees the name when the process exits. */
  releaseAtExit(process: HostProcess): void;
}

/** Names of live processes, unique per owner. */
export class ProcessNames {
  /** Holder of each name: handle or id of the process. The key has owner and name. */
  readonly #holders = new Map<string, string>();

  /**
   * Reserves a name before its process starts, so that of two concurrent starts only one succeeds. `holder` identifies
   * the process in the error of the other start. Throws if a live process has the name.
   */
  reserve(ownerId: string, name: string, holder: string): NameReservation {
    // A name has no slash, so the last slash separates owner and name.
    const key = `${ownerId}/${name}`;
    const current = this.#holders.get(key);
    if (current !== undefined)
      throw invalidRequest(
        `name \`${name}\` is in use by process ${current}; end that process, or choose another name`,
        { reason: "nameInUse" },
      );
    this.#holders.set(key, holder);
    const release = () => void this.#holders.delete(key);
    return { release, releaseAtExit: (process) => onceEnded(process, release) };
  }
}
