import type { ExecEvent } from "../../exec/exec-process.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import type { Peer } from "../rpc/peer.ts";
import { VIEWER_SLICE_BYTES } from "../server-config.ts";
import type { Pump } from "./process-pump.ts";
import type { ScheduledViewer, ViewerScheduler } from "./viewer-scheduler.ts";

export interface ViewerPumpOptions {
  afterSeq: number;
  scheduler: ViewerScheduler;
  /** Called when all events of the process were sent. Not called after `stop`. */
  onEnd: () => void;
}

/**
 * Copies the events of one process to a viewer. Reads a lossy cursor, so it never pauses the process: a slow viewer
 * receives a gap.
 */
export class ViewerPump implements Pump, ScheduledViewer {
  readonly #peer: Peer;
  readonly #notify: (event: ExecEvent) => void;
  readonly #cursor: EventCursor;
  readonly #scheduler: ViewerScheduler;
  readonly #onEnd: () => void;
  readonly #log: EventLog;
  readonly #stopDraining: () => void;
  /** Set while all events were sent. Otherwise the viewer waits for a slice or its peer and ignores new events. */
  #stopListening: (() => void) | null = null;
  stopped = false;

  constructor(
    log: EventLog,
    peer: Peer,
    notify: (event: ExecEvent) => void,
    { afterSeq, scheduler, onEnd }: ViewerPumpOptions,
  ) {
    this.#log = log;
    this.#peer = peer;
    this.#notify = notify;
    this.#scheduler = scheduler;
    this.#onEnd = onEnd;
    this.#cursor = log.cursor({ afterSeq, borrows: !peer.keepsBytes });
    this.#stopDraining = peer.onDrain(() => this.#requestSlice());
    this.#requestSlice();
  }

  get seq(): number {
    return this.#cursor.seq;
  }

  /** A viewer has no allowance: events it cannot take become a gap. */
  allow(): void {}

  release(): void {}

  stop(): void {
    if (this.stopped) return;
    this.stopped = true;
    this.#stopListening?.();
    this.#stopDraining();
    this.#scheduler.remove(this);
    this.#cursor.close();
  }

  sendSlice(): ReturnType<ScheduledViewer["sendSlice"]> {
    let messages = 0;
    let bytes = 0;
    while (!this.stopped && bytes < VIEWER_SLICE_BYTES) {
      // The drain listener requests the next slice.
      if (this.#peer.isAboveBulkLimit) return { messages, bytes, isMore: false };
      const event = this.#cursor.next();
      if (!event) {
        if (this.#cursor.ended) this.#end();
        else this.#stopListening ??= this.#log.listen(() => this.#requestSlice());
        return { messages, bytes, isMore: false };
      }
      messages++;
      if (event.type === "output") bytes += event.chunk.length;
      this.#notify(event);
    }
    return { messages, bytes, isMore: !this.stopped };
  }

  #requestSlice(): void {
    this.#stopListening?.();
    this.#stopListening = null;
    this.#scheduler.enqueue(this);
  }

  #end(): void {
    this.stop();
    this.#onEnd();
  }
}
