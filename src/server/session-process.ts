import type { EventCursor } from "../exec/event-log.ts";
import type { ExecEvent } from "../exec/exec-process.ts";
import type { HostProcess } from "../exec/host-backend.ts";
import type { Extension } from "../protocol/methods.ts";
import type { Peer } from "./peer.ts";
import { ProcessPump } from "./process-pump.ts";

/** A connection that has a session: where its events go, and what it asked for. */
export interface Attachment {
  readonly peer: Peer;
  readonly extensions: ReadonlySet<Extension>;
}

/** One process of a session: carries its events to whoever is attached, and holds what must not be lost meanwhile. */
export class SessionProcess {
  readonly process: HostProcess;
  #pump: ProcessPump | null = null;
  /** Under `outputAck`: everything after it is unconfirmed and stays. Survives a lost connection. */
  #unconfirmed: EventCursor | null = null;
  /** While detached without `outputAck`: keeps what there was when the connection went. */
  #detached: EventCursor | null = null;

  constructor(process: HostProcess) {
    this.process = process;
  }

  /** Begins to send events after `afterSeq`. */
  attach(attachment: Attachment, afterSeq: number): void {
    this.#pump?.stop();
    const { log } = this.process;
    const { peer, extensions } = attachment;
    if (extensions.has("outputAck")) {
      // A resumed lossless session goes on from what was confirmed; one that only now asks for it, from what is retained.
      this.#unconfirmed ??= log.cursor({
        afterSeq: this.#detached?.seq ?? firstRetained(log),
        holding: true,
      });
    } else {
      this.#unconfirmed?.close();
      this.#unconfirmed = null;
    }
    this.#detached?.close();
    this.#detached = null;
    this.#pump = new ProcessPump(
      log,
      peer,
      (event) => tell(peer, extensions, this.process.processId, event),
      {
        afterSeq,
      },
    );
  }

  /** The connection is gone; `extraBytes` more than the retention may pile up before the process is paused. */
  detach(onDetach: "pause" | "evict", extraBytes: number): void {
    this.#pump?.stop();
    this.#pump = null;
    if (this.#unconfirmed || onDetach === "evict") return;
    const { log } = this.process;
    this.#detached = log.cursor({ afterSeq: firstRetained(log), holding: true, extraBytes });
  }

  confirm(seq: number): void {
    this.#unconfirmed?.advanceTo(seq);
  }

  /** Stops sending and gives the retained output back. */
  forget(): void {
    this.#pump?.stop();
    this.#unconfirmed?.close();
    this.#detached?.close();
    this.process.log.dispose();
  }
}

/** The seq before the oldest output that can still be read. */
function firstRetained(log: HostProcess["log"]): number {
  return log.read({ maxBytes: 0 }).gap?.toSeq ?? 0;
}

function tell(peer: Peer, extensions: ReadonlySet<Extension>, processId: string, event: ExecEvent): void {
  switch (event.type) {
    case "output": {
      const { seq, stream, chunk } = event;
      peer.notify({ method: "process/output", params: { processId, seq, stream, chunk } });
      return;
    }
    case "exited": {
      const { seq, exitCode, sandboxDenied, signal, reason } = event;
      peer.notify({
        method: "process/exited",
        params: { processId, seq, exitCode, sandboxDenied, signal, reason },
      });
      return;
    }
    case "closed":
      peer.notify({ method: "process/closed", params: { processId, seq: event.seq } });
      return;
    case "failed":
      if (extensions.has("failed"))
        peer.notify({ method: "process/failed", params: { processId, message: event.message } });
      return;
    case "gap":
      // A pump's cursor holds everything it has not sent: there is nothing to skip.
      return;
  }
}
