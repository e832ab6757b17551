import type { Clock, Timer } from "../../async/clock.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import type { ExecEvent, ReadParams, ReadResult } from "../../exec/exec-process.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { type Extension, isNotified } from "../../protocol/methods.ts";
import type { CallContext } from "../rpc/handler-types.ts";
import type { Peer } from "../rpc/peer.ts";
import { RESUME_READ_TIMEOUT_MS, RESUME_SEND_ALLOWANCE, RESUME_SETTLE_MS } from "../server-config.ts";
import { ProcessPump, type Pump, type SendAllowance } from "./process-pump.ts";
import { isLogComplete } from "./process-state.ts";
import type { AttachRole, Driver, Owner, SharedProcess } from "./shared-process.ts";
import { ViewerPump } from "./viewer-pump.ts";
import type { ViewerScheduler } from "./viewer-scheduler.ts";

/** A connection of a session: its peer and the extensions it requested. */
export interface SessionClient {
  readonly peer: Peer;
  readonly extensions: ReadonlySet<Extension>;
  /** Name that the client sent in `initialize`. */
  readonly clientName: string;
}

/** Keeps output from being evicted until the client has it. */
type OutputPin =
  | { type: "none" }
  /** With `outputAck`: pins everything after the last acknowledgement. Survives a lost connection. */
  | { type: "unconfirmed"; cursor: EventCursor }
  /** While detached: pins the output that was retained when the connection was lost, and everything after it. */
  | { type: "detached"; cursor: EventCursor }
  /** After a resume: pins the missed output until the client has read it or its time is up. */
  | { type: "resumed"; cursor: EventCursor; missedThroughSeq: number; timer: Timer };

export interface SessionProcessOptions {
  /** Process id in this session. */
  processId: string;
  role: "owner" | AttachRole;
  clock: Clock;
  scheduler: ViewerScheduler;
  onDetach: "pause" | "evict";
  /** Bytes beyond the retention limit that may pile up while the client is disconnected. */
  extraBytes: number;
  /** Called when `isDelivered` may have changed. */
  onProgress: () => void;
  /** Called when another session attaches to this session's own process. */
  onShared: () => void;
}

/**
 * A process as one session sees it, either its own or one it attached to. Sends the events of the process to the
 * session's connection and pins output that must not be lost. Pins nothing for a viewer.
 */
export class SessionProcess implements Owner, Driver {
  readonly shared: SharedProcess;
  readonly processId: string;
  readonly #options: SessionProcessOptions;
  #role: "owner" | AttachRole;
  /** Role that the session was last notified of. */
  #reportedRole: "owner" | AttachRole;
  #reportedDriver: "attached" | "none" = "none";
  #attachment: SessionClient | null = null;
  #pump: Pump | null = null;
  #pin: OutputPin = { type: "none" };
  /** Number of the last size change sent to this connection. */
  #reportedSize = 0;
  readonly #stopSizes: () => void;
  #stopDraining: (() => void) | null = null;

  constructor(shared: SharedProcess, options: SessionProcessOptions) {
    this.shared = shared;
    this.processId = options.processId;
    this.#options = options;
    this.#role = options.role;
    this.#reportedRole = options.role;
    if (options.role === "owner") shared.setOwner(this);
    else shared.addReference(this);
    if (options.role === "driver") shared.setDriver(this);
    this.#stopSizes = shared.process.sizes.listen(() => this.#notifySizes());
  }

  get process(): HostProcess {
    return this.shared.process;
  }

  get role(): "owner" | AttachRole {
    return this.#role;
  }

  get handle(): string {
    return this.shared.handle;
  }

  /** Throws if this session is a viewer, which may only read. */
  requireWritable(): void {
    if (this.#role === "viewer")
      throw invalidRequest(
        `process ${this.processId} is attached to as a viewer, who may only read; attach to it as driver to do this`,
      );
  }

  /** Changes the role at the session's own request. Only for attached processes. */
  changeRole(role: AttachRole): void {
    if (this.#role === role) return;
    this.#reportedRole = role;
    this.#setRole(role);
    if (role === "driver") this.shared.setDriver(this);
    else this.shared.clearDriver(this);
  }

  driverReplaced(): void {
    this.#setRole("viewer");
    this.#notifyRole();
  }

  driverChanged(driver: "attached" | "none"): void {
    if (!this.#attachment || !isNotified("process/driverChanged", this.#attachment.extensions)) return;
    this.#reportedDriver = driver;
    const { processId, handle } = this;
    this.#attachment.peer.notify({ method: "process/driverChanged", params: { processId, handle, driver } });
  }

  wasShared(): void {
    this.#options.onShared();
  }

  /** Sends all events of a newly started process to this connection. */
  start(attachment: SessionClient, afterSeq = 0): void {
    this.#attach(attachment);
    this.#pinFrom(afterSeq, attachment.extensions);
    this.#replacePump(this.#pumpTo(attachment, afterSeq));
    this.#notifyRole();
  }

  /** Starts delivery after the connection was lost during the start. Its extensions still apply. */
  startDetached(extensions: SessionClient["extensions"]): void {
    this.#pinFrom(0, extensions);
    this.detach();
  }

  /** Sends new events to a new connection of the session. The client reads the missed output itself. */
  resume(attachment: SessionClient, client: "same" | "another"): void {
    if (this.#role === "owner") this.shared.queryArbiter?.clientConnected(client);
    this.#attach(attachment);
    const { log } = this.process;
    const missedThroughSeq = log.nextSeq - 1;
    if (this.#role !== "viewer") this.#pinMissedOutput(attachment, missedThroughSeq);
    const allowance = this.#pin.type === "resumed" ? { allowance: RESUME_SEND_ALLOWANCE } : {};
    this.#replacePump(this.#pumpTo(attachment, missedThroughSeq, allowance));
    this.#notifyRole();
  }

  #attach(attachment: SessionClient): void {
    this.#attachment = attachment;
    this.#reportedSize = 0;
    this.#cancelDrainWait();
    // The output that the client gets next was written for one of these sizes.
    this.#notifySizes();
  }

  /** Sends the size changes since the last notification. Merges changes while the peer is congested. */
  #notifySizes(): void {
    const { sizes } = this.process;
    if (this.#reportedSize === sizes.lastNumber || !this.#attachment) return;
    const { peer, extensions } = this.#attachment;
    if (!isNotified("process/resized", extensions)) return;
    if (peer.isAboveQueueLimit) {
      this.#stopDraining ??= peer.onDrain(() => this.#notifySizes());
      return;
    }
    this.#cancelDrainWait();
    const { processId } = this;
    const changes = sizes.changesSince(this.#reportedSize);
    this.#reportedSize = sizes.lastNumber;
    for (const change of changes)
      peer.notify({ method: "process/resized", params: { processId, ...change } });
  }

  #cancelDrainWait(): void {
    this.#stopDraining?.();
    this.#stopDraining = null;
  }

  #pinMissedOutput(attachment: SessionClient, missedThroughSeq: number): void {
    const { log } = this.process;
    const heldAfter = this.#pin.type === "none" ? oldestRetainedSeq(log) : this.#pin.cursor.seq;
    if (!attachment.extensions.has("outputAck")) {
      this.#replacePin(
        heldAfter < missedThroughSeq ? this.#resumedFrom(heldAfter, missedThroughSeq) : { type: "none" },
      );
    } else if (this.#pin.type !== "unconfirmed") {
      // A client that enables acknowledgements only now starts with the retained output.
      this.#replacePin(this.#unacknowledgedFrom(heldAfter));
    }
  }

  /** Detaches from a lost connection. */
  detach(): void {
    this.#attachment = null;
    if (this.#role === "owner") this.shared.queryArbiter?.clientDisconnected();
    this.#cancelDrainWait();
    const { log } = this.process;
    if (this.#role !== "viewer" && this.#pin.type !== "unconfirmed") {
      const heldAfter = this.#pin.type === "none" ? oldestRetainedSeq(log) : this.#pin.cursor.seq;
      this.#replacePin(
        this.#options.onDetach === "evict"
          ? { type: "none" }
          : { type: "detached", cursor: this.#pinnedFrom(heldAfter, this.#options.extraBytes) },
      );
    }
    this.#replacePump(null);
  }

  /** Handles an acknowledgement of everything up to `seq`. */
  acknowledge(seq: number): void {
    if (this.#pin.type !== "unconfirmed") return;
    this.#pin.cursor.advanceTo(seq);
    this.#options.onProgress();
  }

  async read(params: ReadParams, { disconnected, afterResponse }: CallContext): Promise<ReadResult> {
    const result = await this.process.log.readWaiting(params, disconnected);
    // After the response, so that new output does not overtake the missed output.
    afterResponse(() => this.#onRead(params.afterSeq ?? 0, result.nextSeq - 1));
    return result;
  }

  /** True when the process has closed and its client has received and, with `outputAck`, acknowledged everything. */
  get isDelivered(): boolean {
    if (!isLogComplete(this.process) || this.#pump?.stopped === false) return false;
    return this.#pin.type !== "unconfirmed" || this.#pin.cursor.seq >= this.process.log.nextSeq - 1;
  }

  /** Stops sending and releases the process. The last release frees its output. */
  forget(): void {
    this.#attachment = null;
    this.#cancelDrainWait();
    this.#stopSizes();
    this.#replacePump(null);
    this.#replacePin({ type: "none" });
    this.shared.release(this);
  }

  #setRole(role: AttachRole): void {
    this.#role = role;
    const pump = this.#pump;
    if (this.#attachment && pump && !pump.stopped) {
      // The new pump continues at the position of the old one.
      this.#pinFrom(pump.seq, this.#attachment.extensions);
      this.#replacePump(this.#pumpTo(this.#attachment, pump.seq));
    } else if (role === "viewer") {
      this.#replacePin({ type: "none" });
    }
  }

  /** Notifies the client of role and driver changes, including changes that happened while the session was detached. */
  #notifyRole(): void {
    const role = this.#role;
    const { driver } = this.shared;
    if (role === "owner" && driver !== this.#reportedDriver) this.driverChanged(driver);
    if (!this.#attachment || role === "owner" || role === this.#reportedRole) return;
    this.#reportedRole = role;
    const { processId } = this;
    const reason = "another session has taken over as driver";
    this.#attachment.peer.notify({ method: "process/roleChanged", params: { processId, role, reason } });
  }

  /** Handles a read of a resumed client, which has everything up to `afterSeq`. Unpins what it has read. */
  #onRead(afterSeq: number, throughSeq: number): void {
    const pin = this.#pin;
    if (pin.type !== "resumed") return;
    pin.timer.cancel();
    if (throughSeq >= pin.missedThroughSeq) {
      this.#replacePin({ type: "none" });
      this.#settle();
      return;
    }
    pin.cursor.advanceTo(Math.min(afterSeq, pin.missedThroughSeq));
    this.#pin = { ...pin, timer: this.#releaseLater() };
  }

  #pinFrom(seq: number, extensions: SessionClient["extensions"]): void {
    const isConfirmed = this.#role !== "viewer" && extensions.has("outputAck");
    this.#replacePin(isConfirmed ? this.#unacknowledgedFrom(seq) : { type: "none" });
  }

  #unacknowledgedFrom(seq: number): OutputPin {
    return { type: "unconfirmed", cursor: this.#pinnedFrom(seq, 0) };
  }

  #resumedFrom(seq: number, missedThroughSeq: number): OutputPin {
    const cursor = this.#pinnedFrom(seq, this.#options.extraBytes);
    return { type: "resumed", cursor, missedThroughSeq, timer: this.#releaseLater() };
  }

  #releaseLater(): Timer {
    const release = () => {
      this.#replacePin({ type: "none" });
      this.#pump?.release();
    };
    return this.#options.clock.after(RESUME_READ_TIMEOUT_MS, release, { keepAlive: false });
  }

  /** Gives the client time to process the response with the missed output before new events follow without limit. */
  #settle(): void {
    const pump = this.#pump;
    pump?.allow(RESUME_SEND_ALLOWANCE);
    this.#options.clock.after(RESUME_SETTLE_MS, () => pump?.release(), { keepAlive: false });
  }

  #pinnedFrom(afterSeq: number, extraBytes: number): EventCursor {
    return this.process.log.cursor({ afterSeq, lossless: true, extraBytes });
  }

  /** Sets the new pin before closing the old one, so that nothing between them is evicted. */
  #replacePin(pin: OutputPin): void {
    const former = this.#pin;
    this.#pin = pin;
    if (former.type === "resumed") former.timer.cancel();
    if (former.type !== "none") former.cursor.close();
  }

  #replacePump(pump: Pump | null): void {
    const former = this.#pump;
    this.#pump = pump;
    former?.stop();
    this.#options.onProgress();
  }

  #pumpTo(
    { peer, extensions }: SessionClient,
    afterSeq: number,
    options: { allowance?: SendAllowance } = {},
  ): Pump {
    const { log } = this.process;
    const { scheduler, onProgress: onEnd } = this.#options;
    const notify = (event: ExecEvent) => this.#notify(peer, extensions, event);
    if (this.#role === "viewer") return new ViewerPump(log, peer, notify, { afterSeq, scheduler, onEnd });
    return new ProcessPump(log, peer, notify, { afterSeq, onEnd, ...options });
  }

  #notify(peer: Peer, extensions: ReadonlySet<Extension>, event: ExecEvent): void {
    const { processId } = this;
    this.#notifySizes();
    switch (event.type) {
      case "output": {
        const { seq, stream, chunk } = event;
        peer.notify({ method: "process/output", params: { processId, seq, stream, chunk } });
        return;
      }
      case "exited": {
        const { seq, exitCode, sandboxDenied, signal, reason, limit } = event;
        peer.notify({
          method: "process/exited",
          params: { processId, seq, exitCode, sandboxDenied, signal, reason, limit },
        });
        return;
      }
      case "closed":
        peer.notify({ method: "process/closed", params: { processId, seq: event.seq } });
        return;
      case "failed":
        if (this.#role !== "owner" || isNotified("process/failed", extensions))
          peer.notify({ method: "process/failed", params: { processId, message: event.message } });
        else notifyExit(peer, processId, this.process.log);
        return;
      case "gap": {
        // The owner's unsent output is pinned, so there is no gap.
        if (this.#role === "owner") return;
        const { fromSeq, toSeq, bytes } = event;
        peer.notify({ method: "process/gap", params: { processId, fromSeq, toSeq, bytes } });
        return;
      }
    }
  }
}

/** Returns the seq before the oldest retained output. */
function oldestRetainedSeq(log: HostProcess["log"]): number {
  return log.read({ maxBytes: 0 }).gap?.toSeq ?? 0;
}

/** Reports a failure to a client without the `failed` extension: an exit with code -1, then the close. */
function notifyExit(peer: Peer, processId: string, { exit, nextSeq }: HostProcess["log"]): void {
  const exited = {
    seq: nextSeq,
    exitCode: -1,
    sandboxDenied: false,
    signal: null,
    reason: "exited",
  } as const;
  if (exit === null) peer.notify({ method: "process/exited", params: { processId, ...exited } });
  peer.notify({
    method: "process/closed",
    params: { processId, seq: exit === null ? nextSeq + 1 : nextSeq },
  });
}
