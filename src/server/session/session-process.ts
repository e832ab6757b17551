import type { HostProcess } from "../../exec/backend/host-backend.ts";
import { isLogComplete } from "../../exec/backend/process-state.ts";
import type { ExecEvent, ReadParams, ReadResult } from "../../exec/exec-process.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { type Extension, isNotified } from "../../protocol/methods.ts";
import type { CallContext } from "../rpc/handler-types.ts";
import type { Peer } from "../rpc/peer.ts";
import { RESUME_SEND_ALLOWANCE, RESUME_SETTLE_MS, UNCHARGED_READ_BYTES } from "../server-config.ts";
import { OutputPin, type OutputPinOptions } from "./output-pin.ts";
import { ProcessPump, type Pump, type SendAllowance } from "./process-pump.ts";
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

export interface SessionProcessOptions extends Omit<OutputPinOptions, "onReadTimeout"> {
  /** Process id in this session. */
  processId: string;
  role: "owner" | AttachRole;
  scheduler: ViewerScheduler;
  /** Called when `isDelivered` may have changed. */
  onProgress: () => void;
  /** Called when another session attaches to this session's own process or releases it. */
  onSharingChanged: () => void;
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
  #client: SessionClient | null = null;
  #isDetached = false;
  #pump: Pump | null = null;
  readonly #pin: OutputPin;
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
    const onReadTimeout = () => this.#pump?.release();
    this.#pin = new OutputPin(shared.process.log, { ...options, onReadTimeout });
    if (options.role === "owner") shared.setOwner(this);
    else shared.addAttached(this);
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

  /** False while the session is detached. True before the delivery begins. */
  get isConnected(): boolean {
    return !this.#isDetached;
  }

  /** Returns the driver for the response to `process/attach`. Later changes are notified. */
  takeDriver(): "attached" | "none" {
    this.#reportedDriver = this.shared.driverFor(this);
    return this.#reportedDriver;
  }

  /** Notifies a viewer of the driver if it changed. */
  updateDriver(): void {
    const driver = this.shared.driverFor(this);
    if (this.#role === "viewer" && driver !== this.#reportedDriver) this.driverChanged(driver);
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
    this.#reportedDriver = "attached";
    this.#setRole("viewer");
    this.#notifyRole();
  }

  driverChanged(driver: "attached" | "none"): void {
    if (!this.#client || !isNotified("process/driverChanged", this.#client.extensions)) return;
    this.#reportedDriver = driver;
    const { processId, handle } = this;
    this.#client.peer.notify({ method: "process/driverChanged", params: { processId, handle, driver } });
  }

  sharingChanged(): void {
    this.#options.onSharingChanged();
  }

  /** Sends all events of a newly started process to this connection. */
  start(client: SessionClient, afterSeq = 0): void {
    this.#attach(client);
    this.#pinFrom(afterSeq, client.extensions);
    this.#replacePump(this.#pumpTo(client, afterSeq));
    this.#notifyRole();
  }

  /** Starts delivery after the connection was lost during the start. Its extensions still apply. */
  startDetached(extensions: SessionClient["extensions"]): void {
    this.#pinFrom(0, extensions);
    this.detach();
  }

  /** Sends new events to a new connection of the session. The client reads the missed output itself. */
  resume(client: SessionClient, kind: "same" | "another"): void {
    if (this.#role === "owner") this.shared.queryArbiter?.clientConnected(kind);
    this.#attach(client);
    if (this.#role !== "viewer") this.#pin.resume({ hasAcks: client.extensions.has("outputAck") });
    const options = this.#pin.isWaitingForRead ? { allowance: RESUME_SEND_ALLOWANCE } : {};
    this.#replacePump(this.#pumpTo(client, this.process.log.nextSeq - 1, options));
    this.#notifyRole();
  }

  #attach(client: SessionClient): void {
    this.#client = client;
    this.#isDetached = false;
    this.#reportedSize = 0;
    this.#cancelDrainWait();
    // The output that the client gets next was written for one of these sizes.
    this.#notifySizes();
    if (this.#role !== "viewer") this.shared.updateDriver();
  }

  /** Sends the size changes since the last notification. Merges changes while the peer is above its queue limit. */
  #notifySizes(): void {
    const { sizes } = this.process;
    if (this.#reportedSize === sizes.lastNumber || !this.#client) return;
    const { peer, extensions } = this.#client;
    if (!isNotified("process/resized", extensions)) return;
    if (peer.isAboveQueueLimit) {
      this.#stopDraining ??= peer.onDrain(() => this.#notifySizes());
      return;
    }
    this.#cancelDrainWait();
    const { processId } = this;
    const changes = sizes.changesSince(this.#reportedSize);
    this.#reportedSize = sizes.lastNumber;
    for (const change of changes) peer.notify({ method: "process/resized", params: { processId, ...change } });
  }

  #cancelDrainWait(): void {
    this.#stopDraining?.();
    this.#stopDraining = null;
  }

  /** Detaches from a lost connection. */
  detach(): void {
    this.#client = null;
    this.#isDetached = true;
    if (this.#role === "owner") this.shared.queryArbiter?.clientDisconnected();
    if (this.#role !== "viewer") this.shared.updateDriver();
    this.#cancelDrainWait();
    if (this.#role !== "viewer") this.#pin.detach();
    this.#replacePump(null);
  }

  /** Evicts the output that is pinned for a disconnected client. The client gets a gap. */
  evictDetached(): void {
    if (!this.#isDetached) return;
    this.#pin.release();
    this.process.log.evictTo(0);
  }

  /** Handles an acknowledgement of everything up to `seq`. */
  acknowledge(seq: number): void {
    this.#pin.acknowledge(seq);
    this.#options.onProgress();
  }

  /** Reads events. Calls `acquireWait` if there are none yet. */
  async read(
    params: ReadParams,
    { disconnected, afterResponse, chargeResponseBytes }: CallContext,
    acquireWait?: () => () => void,
  ): Promise<ReadResult> {
    const reserve = async (bytes: number) => {
      // The charge of a pending request includes short results.
      if (bytes > UNCHARGED_READ_BYTES) await chargeResponseBytes(bytes);
    };
    const result = await this.process.log.readWaiting(params, { disconnected, acquireWait, reserve });
    // After the response, so that new output does not overtake the missed output.
    afterResponse(() => {
      if (this.#pin.onRead(params.afterSeq ?? 0, result.nextSeq - 1)) this.#releaseAfterDelay();
    });
    return result;
  }

  /** True when the process has closed and its client has received and, with `outputAck`, acknowledged everything. */
  get isDelivered(): boolean {
    const isSent = this.#pump?.stopped !== false;
    return isLogComplete(this.process) && isSent && this.#pin.isAcknowledged;
  }

  /** Stops sending and releases the process. The last release frees its output. */
  forget(): void {
    this.#client = null;
    this.#cancelDrainWait();
    this.#stopSizes();
    this.#replacePump(null);
    this.#pin.release();
    this.shared.release(this);
  }

  #setRole(role: AttachRole): void {
    this.#role = role;
    const pump = this.#pump;
    if (this.#client && pump && !pump.stopped) {
      // The new pump continues at the position of the old one.
      this.#pinFrom(pump.seq, this.#client.extensions);
      this.#replacePump(this.#pumpTo(this.#client, pump.seq));
    } else if (role === "viewer") {
      this.#pin.release();
    }
  }

  /** Notifies the client of role and driver changes, including changes that happened while the session was detached. */
  #notifyRole(): void {
    const role = this.#role;
    const { driver } = this.shared;
    if (role === "owner" && driver !== this.#reportedDriver) this.driverChanged(driver);
    this.updateDriver();
    if (!this.#client || role === "owner" || role === this.#reportedRole) return;
    this.#reportedRole = role;
    const { processId } = this;
    const reason = "another session has taken over as driver";
    this.#client.peer.notify({ method: "process/roleChanged", params: { processId, role, reason } });
  }

  #pinFrom(seq: number, extensions: SessionClient["extensions"]): void {
    if (this.#role !== "viewer" && extensions.has("outputAck")) this.#pin.pinUnacknowledged(seq);
    else this.#pin.release();
  }

  /** Gives the client time to process the response with the missed output before new events follow without limit. */
  #releaseAfterDelay(): void {
    const pump = this.#pump;
    pump?.allow(RESUME_SEND_ALLOWANCE);
    this.#options.clock.after(RESUME_SETTLE_MS, () => pump?.release(), { keepAlive: false });
  }

  /** Replaces the pump. The new one already pins its output, so nothing is evicted when the former one stops. */
  #replacePump(pump: Pump | null): void {
    const former = this.#pump;
    this.#pump = pump;
    former?.stop();
    this.#options.onProgress();
  }

  #pumpTo({ peer, extensions }: SessionClient, afterSeq: number, options: { allowance?: SendAllowance } = {}): Pump {
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

/** Reports a failure to a client without the `failed` extension: an exit with code -1, then the close. */
function notifyExit(peer: Peer, processId: string, { exit, nextSeq }: HostProcess["log"]): void {
  let seq = nextSeq;
  if (exit === null) {
    const exited = { exitCode: -1, sandboxDenied: false, signal: null, reason: "exited" } as const;
    peer.notify({ method: "process/exited", params: { processId, seq: seq++, ...exited } });
  }
  peer.notify({ method: "process/closed", params: { processId, seq } });
}
