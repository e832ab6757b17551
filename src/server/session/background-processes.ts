import type { Clock, Timer } from "../../async/clock.ts";
import { onceLogComplete } from "../../exec/backend/process-state.ts";
import { EXITED_BACKGROUND_TTL_MS, MAX_EXITED_BACKGROUND } from "../server-config.ts";
import type { SharedProcess } from "./shared-process.ts";

/** Processes that their session has released. They run without backpressure and stay readable after their end. */
export class BackgroundProcesses {
  readonly #clock: Clock;
  readonly #live = new Set<SharedProcess>();
  /** Exited processes in order of their end. */
  readonly #ended = new Map<SharedProcess, Timer>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  all(): SharedProcess[] {
    return [...this.#ended.keys(), ...this.#live];
  }

  add(shared: SharedProcess): void {
    shared.addReference(this);
    this.#live.add(shared);
    onceLogComplete(shared.process, () => {
      if (this.#live.delete(shared)) this.#retainExited(shared);
    });
  }

  /** Releases all processes when the server stops. The backend ends the live ones. */
  releaseAll(): void {
    for (const shared of this.#live) shared.release(this);
    this.#live.clear();
    for (const shared of [...this.#ended.keys()]) this.#forget(shared);
  }

  #retainExited(shared: SharedProcess): void {
    const timer = this.#clock.after(EXITED_BACKGROUND_TTL_MS, () => this.#forget(shared), {
      keepAlive: false,
    });
    this.#ended.set(shared, timer);
    const [oldest] = this.#ended.keys();
    if (oldest && this.#ended.size > MAX_EXITED_BACKGROUND) this.#forget(oldest);
  }

  #forget(shared: SharedProcess): void {
    this.#ended.get(shared)?.cancel();
    this.#ended.delete(shared);
    shared.release(this);
  }
}
