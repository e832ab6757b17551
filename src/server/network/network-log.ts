import type { HostProcess } from "../../exec/backend/host-backend.ts";
import type { NetworkConnection, NetworkDecision } from "../../protocol/network/network-schemas.ts";

/** Maximum targets of a process in the list. Later targets are counted, because a process may request any number. */
const MAX_TARGETS = 200;

/** Network targets that a process requested, with the decisions of its proxy. */
export class NetworkLog {
  readonly #targets = new Map<string, NetworkConnection>();
  readonly #now: () => number;
  #omitted = 0;
  #listener: ((connection: NetworkConnection) => void) | null = null;

  constructor(now: () => number) {
    this.#now = now;
  }

  add({ decision, reason, protocol, host, port }: NetworkDecision): void {
    const key = JSON.stringify([decision, reason, protocol, host, port]);
    const known = this.#targets.get(key);
    if (known) {
      known.count++;
      known.lastAtMs = this.#now();
      return;
    }
    if (this.#targets.size >= MAX_TARGETS) {
      this.#omitted++;
      return;
    }
    const connection = { decision, reason, protocol, host, port, count: 1, lastAtMs: this.#now() };
    this.#targets.set(key, connection);
    this.#listener?.(connection);
  }

  /** Calls `listener` once for each listed target, also for earlier ones. */
  listen(listener: (connection: NetworkConnection) => void): void {
    for (const connection of this.#targets.values()) listener(connection);
    this.#listener = listener;
  }

  list(): { connections: NetworkConnection[]; omitted: number } {
    return { connections: [...this.#targets.values()], omitted: this.#omitted };
  }
}

const logs = new WeakMap<HostProcess, NetworkLog>();

export function setNetworkLog(process: HostProcess, log: NetworkLog): void {
  logs.set(process, log);
}

/** Returns the network log of a process, or null if the process has no managed network. */
export function findNetworkLog(process: HostProcess): NetworkLog | null {
  return logs.get(process) ?? null;
}
