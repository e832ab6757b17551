import type { EventCursor, EventLog } from "../exec/event-log.ts";
import type { ExecEvent } from "../exec/exec-process.ts";
import type { Peer } from "./peer.ts";

export interface ProcessPumpOptions {
  afterSeq: number;
  /** Everything there will ever be is sent. Not called for a pump that was stopped. */
  onEnd?: () => void;
}

/**
 * Carries one process's events to one peer, in order, as fast as the peer takes them. Its cursor holds what was not
 * sent yet, so a stalled peer makes the process pause instead of making the server grow or the output get lost.
 */
export class ProcessPump {
  readonly #peer: Peer;
  readonly #tell: (event: ExecEvent) => void;
  readonly #cursor: EventCursor;
  readonly #onEnd: () => void;
  readonly #stopListening: () => void;
  readonly #stopDraining: () => void;
  #stopped = false;

  constructor(log: EventLog, peer: Peer, tell: (event: ExecEvent) => void, options: ProcessPumpOptions) {
    this.#peer = peer;
    this.#tell = tell;
    this.#onEnd = options.onEnd ?? (() => undefined);
    this.#cursor = log.cursor({ afterSeq: options.afterSeq, holding: true });
    this.#stopListening = log.listen(() => this.#run());
    this.#stopDraining = peer.onDrain(() => this.#run());
    this.#run();
  }

  /** It sends nothing more: all was sent, or somebody stopped it. */
  get stopped(): boolean {
    return this.#stopped;
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
        if (!this.#cursor.ended) return;
        this.stop();
        this.#onEnd();
        return;
      }
      this.#tell(event);
    }
  }
}
