import type { Clock, Timer } from "../../async/clock.ts";
import type { ExecEvent, ReadParams, ReadResult } from "../../exec/exec-process.ts";
import type { HostProcess } from "../../exec/host-backend.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import type { Extension } from "../../protocol/methods.ts";
import type { CallContext } from "../handlers.ts";
import type { Peer } from "../rpc/peer.ts";
import { RESUMED_AHEAD, RESUMED_READ_WITHIN_MS, RESUMED_SETTLES_WITHIN_MS } from "../server-config.ts";
import { type Allowance, ProcessPump, type Pump } from "./process-pump.ts";
import type { Driver, Owner, Role, SharedProcess } from "./shared-process.ts";
import { ViewerPump } from "./viewer-pump.ts";
import type { ViewerTurns } from "./viewer-scheduler.ts";

/** A connection that has a session: where its events go, and what it asked for. */
export interface Attachment {
  readonly peer: Peer;
  readonly extensions: ReadonlySet<Extension>;
  /** What the client calls itself. */
  readonly clientName: string;
}

/** What keeps output from being evicted on behalf of a client that does not have it yet. */
type Hold =
  | { type: "none" }
  /** Under `outputAck`: everything after it is unconfirmed. Survives a lost connection. */
  | { type: "unconfirmed"; cursor: EventCursor }
  /** While detached: what there was when the connection went, and what came since. */
  | { type: "detached"; cursor: EventCursor }
  /** After a resume: what was missed, until the client has read it or has had the time to. */
  | { type: "resumed"; cursor: EventCursor; missedThroughSeq: number; timer: Timer };

export interface SessionProcessOptions {
  /** What the process is called in this session. */
  processId: string;
  role: "owner" | Role;
  clock: Clock;
  turns: ViewerTurns;
  onDetach: "pause" | "evict";
  /** How much more than the retention may pile up for a client that is away. */
  extraBytes: number;
  /** Something may have become true that `isDelivered` tells. */
  onProgress: () => void;
  /** Of one's own process: another session has it too from now on. */
  onShared: () => void;
}

/**
 * One process of a session, its own or one it has attached to: carries its events to the session's connection, and holds
 * what must not be lost meanwhile. For a viewer nothing is held.
 */
export class SessionProcess implements Owner, Driver {
  readonly shared: SharedProcess;
  readonly processId: string;
  readonly #options: SessionProcessOptions;
  #role: "owner" | Role;
  /** What the session knows its role to be. */
  #toldRole: "owner" | Role;
  #toldDriver: "attached" | "none" = "none";
  #attachment: Attachment | null = null;
  #pump: Pump | null = null;
  #hold: Hold = { type: "none" };
  /** The last change of its terminal's size that this connection was told. */
  #toldSize = 0;
  readonly #stopSizes: () => void;
  #stopDraining: (() => void) | null = null;

  constructor(shared: SharedProcess, options: SessionProcessOptions) {
    this.shared = shared;
    this.processId = options.processId;
    this.#options = options;
    this.#role = options.role;
    this.#toldRole = options.role;
    if (options.role === "owner") shared.own(this);
    else shared.keep(this);
    if (options.role === "driver") shared.drive(this);
    this.#stopSizes = shared.process.sizes.listen(() => this.#tellSizes());
  }

  get process(): HostProcess {
    return this.shared.process;
  }

  get role(): "owner" | Role {
    return this.#role;
  }

  get handle(): string {
    return this.shared.handle;
  }

  /** By the session's own wish. Only of a process it has attached to. */
  changeRole(role: Role): void {
    if (this.#role === role) return;
    this.#toldRole = role;
    this.#setRole(role);
    if (role === "driver") this.shared.drive(this);
    else this.shared.stopDriving(this);
  }

  takenOver(): void {
    this.#setRole("viewer");
    this.#tellRole();
  }

  driverChanged(driver: "attached" | "none"): void {
    if (!this.#attachment?.extensions.has("attach")) return;
    this.#toldDriver = driver;
    const { processId, handle } = this;
    this.#attachment.peer.notify({ method: "process/driverChanged", params: { processId, handle, driver } });
  }

  isShared(): void {
    this.#options.onShared();
  }

  /** The process was started for this connection: everything it tells goes there. */
  begin(attachment: Attachment, afterSeq = 0): void {
    this.#attach(attachment);
    this.#holdFrom(afterSeq, attachment.extensions);
    this.#replacePump(this.#pumpTo(attachment, afterSeq));
    this.#tellRole();
  }

  /** The connection it was started for was lost meanwhile; what that one asked for still counts. */
  beginDetached(extensions: Attachment["extensions"]): void {
    this.#holdFrom(0, extensions);
    this.detach();
  }

  /** Another connection has the session now: it is told what comes from here on, and reads what it missed. */
  resume(attachment: Attachment, client: "same" | "another"): void {
    if (this.#role === "owner") this.shared.claims?.came(client);
    this.#attach(attachment);
    const { log } = this.process;
    const missedThroughSeq = log.nextSeq - 1;
    if (this.#role !== "viewer") this.#holdMissed(attachment, missedThroughSeq);
    const allowance = this.#hold.type === "resumed" ? { allowance: RESUMED_AHEAD } : {};
    this.#replacePump(this.#pumpTo(attachment, missedThroughSeq, allowance));
    this.#tellRole();
  }

  #attach(attachment: Attachment): void {
    this.#attachment = attachment;
    this.#toldSize = 0;
    this.#stopWaitingForRoom();
    // What is told or read next was written for one of them.
    this.#tellSizes();
  }

  /** Not to a peer that takes nothing: a size that was changed often meanwhile is told once. */
  #tellSizes(): void {
    const { sizes } = this.process;
    if (this.#toldSize === sizes.lastNumber || !this.#attachment?.extensions.has("attach")) return;
    const { peer } = this.#attachment;
    if (peer.congested) {
      this.#stopDraining ??= peer.onDrain(() => this.#tellSizes());
      return;
    }
    this.#stopWaitingForRoom();
    const { processId } = this;
    const changes = sizes.since(this.#toldSize);
    this.#toldSize = sizes.lastNumber;
    for (const change of changes)
      peer.notify({ method: "process/resized", params: { processId, ...change } });
  }

  #stopWaitingForRoom(): void {
    this.#stopDraining?.();
    this.#stopDraining = null;
  }

  #holdMissed(attachment: Attachment, missedThroughSeq: number): void {
    const { log } = this.process;
    const heldAfter = this.#hold.type === "none" ? firstRetained(log) : this.#hold.cursor.seq;
    if (!attachment.extensions.has("outputAck")) {
      this.#replaceHold(
        heldAfter < missedThroughSeq ? this.#resumedFrom(heldAfter, missedThroughSeq) : { type: "none" },
      );
    } else if (this.#hold.type !== "unconfirmed") {
      // One that only now asks for acknowledgements begins with what is still here.
      this.#replaceHold(this.#unconfirmedFrom(heldAfter));
    }
  }

  /** The connection is gone. */
  detach(): void {
    this.#attachment = null;
    if (this.#role === "owner") this.shared.claims?.left();
    this.#stopWaitingForRoom();
    const { log } = this.process;
    if (this.#role !== "viewer" && this.#hold.type !== "unconfirmed") {
      const heldAfter = this.#hold.type === "none" ? firstRetained(log) : this.#hold.cursor.seq;
      this.#replaceHold(
        this.#options.onDetach === "evict"
          ? { type: "none" }
          : { type: "detached", cursor: this.#holdingFrom(heldAfter, this.#options.extraBytes) },
      );
    }
    this.#replacePump(null);
  }

  /** The client has everything up to `seq`. */
  confirm(seq: number): void {
    if (this.#hold.type !== "unconfirmed") return;
    this.#hold.cursor.advanceTo(seq);
    this.#options.onProgress();
  }

  async read(params: ReadParams, { gone, afterAnswer }: CallContext): Promise<ReadResult> {
    const result = await this.process.log.readWaiting(params, gone);
    // Not before the answer: what is told next must not overtake what was missed.
    afterAnswer(() => this.#wasRead(params.afterSeq ?? 0, result.nextSeq - 1));
    return result;
  }

  /** True once a closed process's client has been sent everything, and has confirmed it where it does so. */
  get isDelivered(): boolean {
    const { log } = this.process;
    if (!log.isClosed && log.failure === null) return false;
    if (this.#pump && !this.#pump.stopped) return false;
    return this.#hold.type !== "unconfirmed" || this.#hold.cursor.seq >= log.nextSeq - 1;
  }

  /** Stops sending and lets go of the process, whose output is given back when nobody else has it. */
  forget(): void {
    this.#attachment = null;
    this.#stopWaitingForRoom();
    this.#stopSizes();
    this.#replacePump(null);
    this.#replaceHold({ type: "none" });
    this.shared.letGo(this);
  }

  #setRole(role: Role): void {
    this.#role = role;
    const pump = this.#pump;
    if (this.#attachment && pump && !pump.stopped) {
      // It is told on from where the pump of the former role has come to.
      this.#holdFrom(pump.seq, this.#attachment.extensions);
      this.#replacePump(this.#pumpTo(this.#attachment, pump.seq));
    } else if (role === "viewer") {
      this.#replaceHold({ type: "none" });
    }
  }

  /** Somebody else's act may have changed who drives while nobody was there to be told. */
  #tellRole(): void {
    const role = this.#role;
    const { driver } = this.shared;
    if (role === "owner" && driver !== this.#toldDriver) this.driverChanged(driver);
    if (!this.#attachment || role === "owner" || role === this.#toldRole) return;
    this.#toldRole = role;
    const { processId } = this;
    const reason = "another session has taken over as driver";
    this.#attachment.peer.notify({ method: "process/roleChanged", params: { processId, role, reason } });
  }

  /** A resumed client asks for what it missed: it has what lies before, and once all was answered nothing is held. */
  #wasRead(afterSeq: number, throughSeq: number): void {
    const hold = this.#hold;
    if (hold.type !== "resumed") return;
    hold.timer.cancel();
    if (throughSeq >= hold.missedThroughSeq) {
      this.#replaceHold({ type: "none" });
      this.#settle();
      return;
    }
    hold.cursor.advanceTo(Math.min(afterSeq, hold.missedThroughSeq));
    this.#hold = { ...hold, timer: this.#releaseLater() };
  }

  #holdFrom(seq: number, extensions: Attachment["extensions"]): void {
    const isConfirmed = this.#role !== "viewer" && extensions.has("outputAck");
    this.#replaceHold(isConfirmed ? this.#unconfirmedFrom(seq) : { type: "none" });
  }

  #unconfirmedFrom(seq: number): Hold {
    return { type: "unconfirmed", cursor: this.#holdingFrom(seq, 0) };
  }

  #resumedFrom(seq: number, missedThroughSeq: number): Hold {
    const cursor = this.#holdingFrom(seq, this.#options.extraBytes);
    return { type: "resumed", cursor, missedThroughSeq, timer: this.#releaseLater() };
  }

  #releaseLater(): Timer {
    const release = () => {
      this.#replaceHold({ type: "none" });
      this.#pump?.release();
    };
    return this.#options.clock.after(RESUMED_READ_WITHIN_MS, release, { keepAlive: false });
  }

  /** The answer with what was missed is on its way; the client is given a moment to take it in. */
  #settle(): void {
    const pump = this.#pump;
    pump?.allow(RESUMED_AHEAD);
    this.#options.clock.after(RESUMED_SETTLES_WITHIN_MS, () => pump?.release(), { keepAlive: false });
  }

  #holdingFrom(afterSeq: number, extraBytes: number): EventCursor {
    return this.process.log.cursor({ afterSeq, holding: true, extraBytes });
  }

  /** The new hold is there before the old one goes, so nothing between them is evicted. */
  #replaceHold(hold: Hold): void {
    const former = this.#hold;
    this.#hold = hold;
    if (former.type === "resumed") former.timer.cancel();
    if (former.type !== "none") former.cursor.close();
  }

  #replacePump(pump: Pump | null): void {
    const former = this.#pump;
    this.#pump = pump;
    former?.stop();
    this.#options.onProgress();
  }

  #pumpTo({ peer, extensions }: Attachment, afterSeq: number, options: { allowance?: Allowance } = {}): Pump {
    const { log } = this.process;
    const { turns, onProgress: onEnd } = this.#options;
    const tell = (event: ExecEvent) => this.#tell(peer, extensions, event);
    if (this.#role === "viewer") return new ViewerPump(log, peer, tell, { afterSeq, turns, onEnd });
    return new ProcessPump(log, peer, tell, { afterSeq, onEnd, ...options });
  }

  #tell(peer: Peer, extensions: ReadonlySet<Extension>, event: ExecEvent): void {
    const { processId } = this;
    this.#tellSizes();
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
        if (this.#role !== "owner" || extensions.has("failed"))
          peer.notify({ method: "process/failed", params: { processId, message: event.message } });
        else tellEnd(peer, processId, this.process.log);
        return;
      case "gap": {
        // What its owner has not been sent is held, so there is nothing to skip.
        if (this.#role === "owner") return;
        const { fromSeq, toSeq, bytes } = event;
        peer.notify({ method: "process/gap", params: { processId, fromSeq, toSeq, bytes } });
        return;
      }
    }
  }
}

/** The seq before the oldest output that can still be read. */
function firstRetained(log: HostProcess["log"]): number {
  return log.read({ maxBytes: 0 }).gap?.toSeq ?? 0;
}

/** A failure for a client that knows none and would wait for ever: an exit that could not be learned, and the end. */
function tellEnd(peer: Peer, processId: string, { exit, nextSeq }: HostProcess["log"]): void {
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
