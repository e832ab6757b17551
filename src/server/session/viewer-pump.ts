import type { ExecEvent } from "../../exec/exec-process.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import type { Peer } from "../rpc/peer.ts";
import { VIEWER_STEP_BYTES } from "../server-config.ts";
import type { Pump } from "./process-pump.ts";
import type { Viewer, ViewerTurns } from "./viewer-scheduler.ts";

export interface ViewerPumpOptions {
  afterSeq: number;
  turns: ViewerTurns;
  /** Everything there will ever be is sent. Not called for a pump that was stopped. */
  onEnd: () => void;
}

/**
 * Carries one process's events to a viewer. Its cursor holds nothing: a viewer that is slow is told what it missed as a
 * gap, and neither the process nor its driver waits for it.
 */
export class ViewerPump implements Pump, Viewer {
  readonly #peer: Peer;
  readonly #tell: (event: ExecEvent) => void;
  readonly #cursor: EventCursor;
  readonly #turns: ViewerTurns;
  readonly #onEnd: () => void;
  readonly #log: EventLog;
  readonly #stopDraining: () => void;
  /** While it has been told everything: else it waits for its turn or its peer, and needs not hear of each event. */
  #stopListening: (() => void) | null = null;
  #stopped = false;

  constructor(
    log: EventLog,
    peer: Peer,
    tell: (event: ExecEvent) => void,
    { afterSeq, turns, onEnd }: ViewerPumpOptions,
  ) {
    this.#log = log;
    this.#peer = peer;
    this.#tell = tell;
    this.#turns = turns;
    this.#onEnd = onEnd;
    this.#cursor = log.cursor({ afterSeq });
    this.#stopDraining = peer.onDrain(() => this.#want());
    this.#want();
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  get seq(): number {
    return this.#cursor.seq;
  }

  /** A viewer is told what it can take in any case. */
  allow(): void {}

  release(): void {}

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#stopListening?.();
    this.#stopDraining();
    this.#turns.leaves(this);
    this.#cursor.close();
  }

  step(): ReturnType<Viewer["step"]> {
    let messages = 0;
    let bytes = 0;
    while (!this.#stopped && bytes < VIEWER_STEP_BYTES) {
      // It is asked again when its peer has taken what is queued.
      if (this.#peer.crowded) return { messages, bytes, isMore: false };
      const event = this.#cursor.next();
      if (!event) {
        if (this.#cursor.ended) this.#end();
        else this.#stopListening ??= this.#log.listen(() => this.#want());
        return { messages, bytes, isMore: false };
      }
      messages++;
      if (event.type === "output") bytes += event.chunk.length;
      this.#tell(event);
    }
    return { messages, bytes, isMore: !this.#stopped };
  }

  #want(): void {
    this.#stopListening?.();
    this.#stopListening = null;
    this.#turns.wants(this);
  }

  #end(): void {
    this.stop();
    this.#onEnd();
  }
}
