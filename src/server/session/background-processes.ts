import type { Clock, Timer } from "../../async/clock.ts";
import { HELD_ENDED_KEPT_MS, MAX_HELD_ENDED } from "../server-config.ts";
import type { SharedProcess } from "./shared-process.ts";

/**
 * Processes of lifetime `server` whose session is over or has forgotten them. They run on with nothing to hold them back,
 * and can be read for a while after their end.
 */
export class ServerHeldProcesses {
  readonly #clock: Clock;
  readonly #live = new Set<SharedProcess>();
  /** In the order they ended. */
  readonly #ended = new Map<SharedProcess, Timer>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  all(): SharedProcess[] {
    return [...this.#ended.keys(), ...this.#live];
  }

  hold(shared: SharedProcess): void {
    shared.keep(this);
    if (shared.isOver) {
      this.#keepEnded(shared);
      return;
    }
    this.#live.add(shared);
    const stop = shared.process.log.listen(() => {
      if (!shared.isOver) return;
      stop();
      if (this.#live.delete(shared)) this.#keepEnded(shared);
    });
  }

  /** The server ends: what still runs is ended with everything else. */
  letGoOfAll(): void {
    for (const shared of this.#live) shared.letGo(this);
    this.#live.clear();
    for (const shared of [...this.#ended.keys()]) this.#forget(shared);
  }

  #keepEnded(shared: SharedProcess): void {
    const timer = this.#clock.after(HELD_ENDED_KEPT_MS, () => this.#forget(shared), { keepAlive: false });
    this.#ended.set(shared, timer);
    const [oldest] = this.#ended.keys();
    if (oldest && this.#ended.size > MAX_HELD_ENDED) this.#forget(oldest);
  }

  #forget(shared: SharedProcess): void {
    this.#ended.get(shared)?.cancel();
    this.#ended.delete(shared);
    shared.letGo(this);
  }
}
