import type { EventCursor, EventLog } from "../exec/event-log.ts";
import type { ExecEvent } from "../exec/exec-process.ts";
import type { Peer } from "./peer.ts";

/**
 * Carries one process's events to one peer, in order, as fast as the peer takes them. Its cursor holds what was not
 * sent yet, so a stalled peer makes the process pause instead of making the server grow or the output get lost.
 */
export class ProcessPump {
  readonly #peer: Peer;
  readonly #tell: (event: ExecEvent) => void;
  readonly #cursor: EventCursor;
  readonly #stopListening: () => void;
  readonly #stopDraining: () => void;
  #stopped = false;

  constructor(log: EventLog, peer: Peer, tell: (event: ExecEvent) => void, options: { afterSeq: number }) {
    this.#peer = peer;
    this.#tell = tell;
    this.#cursor = log.cursor({ afterSeq: options.afterSeq, holding: true });
    this.#stopListening = log.listen(() => this.#run());
    this.#stopDraining = peer.onDrain(() => this.#run());
    this.#run();
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#stopListening();
    this.#stopDraining();
    this.#cursor.close();
  }

  #run(): void {
    while (!this.#stopped && !this.#peer.congested) {
      const event = this.#cursor.next();
      if (!event) {
        if (this.#cursor.ended) this.stop();
        return;
      }
      this.#tell(event);
    }
  }
}
