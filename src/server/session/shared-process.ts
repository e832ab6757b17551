import type { HostProcess } from "../../exec/backend/host-backend.ts";
import { isLogComplete } from "../../exec/backend/process-state.ts";
import type { Lifetime, ProcessListing, StartParams } from "../../exec/exec-process.ts";
import type { role } from "../../protocol/attach-schemas.ts";
import type { Infer } from "../../protocol/schema.ts";
import { type InputActor, InputHistory, type InputWrite } from "./input-history.ts";
import type { ProcessHandles } from "./process-handles.ts";
import { TerminalQueryClaims } from "./terminal-query-claims.ts";

export type AttachRole = Infer<typeof role>;

/** A session attached to a process. */
export interface Attached {
  readonly isConnected: boolean;
  /** Called when `driverFor` may have changed. */
  updateDriver(): void;
}

/** A session attached to a process as its driver. */
export interface Driver extends Attached {
  /** Called when another session becomes the driver. This one continues as a viewer. */
  driverReplaced(): void;
}

/** The session that started a process. */
export interface Owner {
  readonly isConnected: boolean;
  driverChanged(driver: "attached" | "none"): void;
  /** Called when another session attaches to the process or releases it. */
  sharingChanged(): void;
}

export interface SharedProcessOptions {
  handles: ProcessHandles<SharedProcess>;
  /** Id of the principal that owns the process. */
  ownerId: string;
  lifetime: Lifetime;
  /** Responder to the terminal queries of the process. */
  terminalQueries?: StartParams["terminalQueries"];
  /** Whether echoed input is recorded. Default: false. */
  recordsInput?: boolean;
  /** Handle that was generated before the process, for a persistent process. */
  handle?: string | undefined;
}

/** A process as its owner and all attached sessions see it. The last release frees its output. */
export class SharedProcess {
  readonly process: HostProcess;
  readonly ownerId: string;
  readonly lifetime: Lifetime;
  /** Set if the owner's client claims the terminal queries of the process. */
  readonly queryArbiter: TerminalQueryClaims | null;
  readonly #inputs = new InputHistory();
  /** Whether echoed input is recorded. */
  readonly recordsInput: boolean;
  readonly #handles: ProcessHandles<SharedProcess>;
  readonly terminalQueries: StartParams["terminalQueries"];
  readonly #references = new Set<object>();
  readonly #attached = new Set<Attached>();
  #handle: string | null = null;
  #owner: Owner | null = null;
  #driver: Driver | null = null;

  constructor(
    process: HostProcess,
    { handles, ownerId, lifetime, handle, terminalQueries, recordsInput = false }: SharedProcessOptions,
  ) {
    this.process = process;
    this.#handles = handles;
    if (handle !== undefined) {
      handles.reserve(handle, this);
      this.#handle = handle;
    }
    this.ownerId = ownerId;
    this.lifetime = lifetime;
    // A process without a terminal has no queries.
    this.terminalQueries = process.size === null ? undefined : terminalQueries;
    this.queryArbiter = this.terminalQueries === "claimed" ? new TerminalQueryClaims(process) : null;
    this.recordsInput = recordsInput;
  }

  /** Public handle, created on first use: most processes end before a client needs one. */
  get handle(): string {
    this.#handle ??= this.#handles.allocate(this);
    return this.#handle;
  }

  /** True if the process continues when its session ends. */
  get outlivesSession(): boolean {
    return this.lifetime !== "session";
  }

  /** True while a session other than the owner is attached. */
  get isShared(): boolean {
    return this.#references.size > (this.#owner && this.#references.has(this.#owner) ? 1 : 0);
  }

  get driver(): "attached" | "none" {
    return this.#driver ? "attached" : "none";
  }

  /** Returns whether another session than this one drives the process: the driver or the owner, while it is connected. */
  driverFor(session: Attached): "attached" | "none" {
    const isDriven = this.#driver !== session && this.#driver?.isConnected;
    return isDriven || this.#owner?.isConnected ? "attached" : "none";
  }

  /** Notifies the viewers if the driver or the owner connected, disconnected or left. */
  updateDriver(): void {
    // No notification may follow `process/closed`.
    if (isLogComplete(this.process)) return;
    for (const session of this.#attached) session.updateDriver();
  }

  listing(): ProcessListing {
    return { ...this.process.listing(), handle: this.handle, lifetime: this.lifetime };
  }

  /** Adds a write to the input history. */
  recordInput(actor: InputActor, { chunk, ...input }: Omit<InputWrite, "atMs">): void {
    const atMs = Math.round(this.process.log.ageMs);
    this.#inputs.add(actor, { ...input, atMs, chunk: this.recordsInput ? chunk : null });
  }

  inputs(): ReturnType<InputHistory["entries"]> {
    return this.#inputs.entries();
  }

  setOwner(owner: Owner): void {
    this.#owner = owner;
    this.addReference(owner);
  }

  /** Adds a reference. The process stays until all references are released. */
  addReference(holder: object): void {
    this.#references.add(holder);
    if (holder !== this.#owner) this.#owner?.sharingChanged();
  }

  /** Adds an attached session. */
  addAttached(session: Attached): void {
    this.#attached.add(session);
    this.addReference(session);
  }

  release(holder: object): void {
    if (!this.#references.delete(holder)) return;
    for (const session of this.#attached) if (session === holder) this.#attached.delete(session);
    if (this.#owner === holder) {
      this.#owner = null;
      this.queryArbiter?.clientDisconnected();
      this.updateDriver();
    }
    if (this.#driver === holder) this.#setDriver(null);
    this.#owner?.sharingChanged();
    if (this.#references.size > 0) return;
    if (this.#handle !== null) this.#handles.release(this.#handle);
    this.process.log.dispose();
    this.process.persistent?.remove();
  }

  /** Makes a session the driver. The previous driver becomes a viewer. */
  setDriver(driver: Driver): void {
    const former = this.#driver;
    if (former === driver) return;
    this.#setDriver(driver);
    former?.driverReplaced();
  }

  clearDriver(driver: Driver): void {
    if (this.#driver === driver) this.#setDriver(null);
  }

  #setDriver(driver: Driver | null): void {
    this.#driver = driver;
    // An attached client never replies to terminal queries: it may replay old output, or disconnect at any time.
    if (this.terminalQueries === undefined) this.process.setTerminalResponder(driver !== null);
    // No notification may follow `process/closed`.
    if (!isLogComplete(this.process)) this.#owner?.driverChanged(this.driver);
    this.updateDriver();
  }
}
