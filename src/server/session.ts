import type { Clock, Timer } from "../async/clock.ts";
import { Lanes } from "../async/keyed-queue.ts";
import type {
  ProcessListing,
  ReadParams,
  ReadResult,
  StartParams,
  TerminateMode,
  TerminateResult,
  WriteStatus,
} from "../exec/exec-process.ts";
import type { HostBackend, HostProcess } from "../exec/host-backend.ts";
import { KEPT_RETAINED_BYTES, type RestoredProcess } from "../exec/kept-process.ts";
import { invalidRequest, type RequestError } from "../protocol/errors.ts";
import { ForwardListeners } from "./forward/forward-listeners.ts";
import { notOfThis } from "./generation.ts";
import type { CallContext } from "./handlers.ts";
import { InputLanes } from "./input-lanes.ts";
import { CLOSED_PROCESS_KEPT_MS, type ServerConfig } from "./server-config.ts";
import type { ServerHeldProcesses } from "./session/background-processes.ts";
import type { TypedInput } from "./session/input-history.ts";
import type { ProcessHandles } from "./session/process-handles.ts";
import { type Attachment, SessionProcess } from "./session/session-process.ts";
import { type Role, SharedProcess } from "./session/shared-process.ts";
import type { ViewerTurns } from "./session/viewer-scheduler.ts";

type State =
  | { type: "attached"; attachment: Attachment }
  /** What its last connection asked for holds for processes that finish their start meanwhile. */
  | { type: "detached"; expiry: Timer; extensions: Attachment["extensions"] }
  /** Its processes were ended and it can no longer be resumed. */
  | { type: "over" };

type Slot =
  | { type: "starting"; started: Promise<SessionProcess | null> }
  | { type: "started"; entry: SessionProcess };

export interface SessionDeps {
  backend: HostBackend;
  clock: Clock;
  handles: ProcessHandles<SharedProcess>;
  turns: ViewerTurns;
  /** Takes the processes that outlive the session. */
  held: ServerHeldProcesses;
  /** Everything done to a process leaves a line, so all input comes by the ordered way. */
  isAudited: boolean;
  /** Of the server. */
  generation: string;
  /** Tells the sessions of a server apart without naming one. */
  number: number;
  /** The principal whose session it is. */
  ownerId: string;
  config: ServerConfig;
  /** Called once, when the session can no longer be resumed. */
  onOver: (session: Session) => void;
}

/** How a session attaches to a process of another one. */
export interface AttachOptions {
  role: Role;
  /** Default: the process's handle. */
  processId?: string | undefined;
  /** Default 0. */
  afterSeq?: number | undefined;
}

/** Owns processes. At most one connection is attached; when that is lost, the processes go on for a while. */
export class Session {
  readonly id: string;
  readonly #deps: SessionDeps;
  readonly #slots = new Map<string, Slot>();
  /** Never below the number of live ones, and counted anew only at the cap: a start does not look at all that ended. */
  #liveAtMost = 0;
  readonly #forgetting = new Map<SessionProcess, Timer>();
  /** Forgotten, but somebody they started lives on: that one ends with the session. */
  readonly #ended = Promise.withResolvers<void>();
  #outlived: HostProcess[] = [];
  readonly #input = new InputLanes();
  /** Changes of files keep their order, also across a lost connection. */
  readonly fileChanges = new Lanes<"changes">();
  /** They outlive its connection. */
  readonly listeners = new ForwardListeners();
  #state: State;
  #attachments = 1;
  readonly #isRestored: boolean;

  /** Without an attachment: one of an earlier server, which waits for its client to come back. */
  constructor(id: string, attachment: Attachment | null, deps: SessionDeps) {
    this.id = id;
    this.#deps = deps;
    this.#isRestored = attachment === null;
    this.#state = attachment ? { type: "attached", attachment } : this.#detached(new Set());
  }

  /** Has a process again that an earlier server started for it. */
  restore({ process, attachments }: RestoredProcess, shared: SharedProcess): void {
    const { processId } = process;
    const entry = this.#entryOf(shared, processId, "owner");
    this.#attachments = Math.max(this.#attachments, attachments);
    this.#slots.set(processId, { type: "started", entry });
    this.#liveAtMost++;
    this.#input.started(process);
    entry.detach();
    this.#considerForgetting(entry);
  }

  get attachment(): Attachment | null {
    return this.#state.type === "attached" ? this.#state.attachment : null;
  }

  get number(): number {
    return this.#deps.number;
  }

  /** The public name of a process it has; null when it has none of that id, or it has not started. */
  handleOf(processId: string): string | null {
    const slot = this.#slots.get(processId);
    return slot?.type === "started" ? slot.entry.handle : null;
  }

  /** Its connection asked for an extension, so it may be told more than the reference server tells. */
  get isExtended(): boolean {
    return (this.attachment?.extensions.size ?? 0) > 0;
  }

  /** Names the client that has, or last had, this session: the same across its connections, another for a client that takes it over. */
  get attachmentId(): string {
    return String(this.#attachments);
  }

  /** A new connection takes the session; its processes go on telling from now, what was missed can be read. */
  attach(attachment: Attachment, client: "same" | "another"): void {
    if (client === "another") {
      this.#attachments++;
      const session = { hasLeft: false, attachments: this.#attachments };
      for (const { role, process } of this.#entries())
        if (role === "owner") process.kept?.noteSession(session);
    }
    this.#input.follow(null);
    if (this.#state.type === "detached") this.#state.expiry.cancel();
    this.#state = { type: "attached", attachment };
    for (const entry of this.#entries()) entry.resume(attachment, client);
  }

  /** The connection is lost. Ignored when another one has taken the session over meanwhile. */
  detach(attachment: Attachment): void {
    if (this.#state.type !== "attached" || this.#state.attachment !== attachment) return;
    this.#input.follow(null);
    const { detachedSessionTtlMs } = this.#deps.config;
    if (detachedSessionTtlMs === 0) {
      this.end();
      return;
    }
    for (const entry of this.#entries()) entry.detach();
    this.#state = this.#detached(attachment.extensions);
  }

  #detached(extensions: Attachment["extensions"]): State {
    const { detachedSessionTtlMs } = this.#deps.config;
    const expiry = this.#deps.clock.after(detachedSessionTtlMs, () => this.end(), { keepAlive: false });
    return { type: "detached", expiry, extensions };
  }

  /** The connection may use its processes from now on. Ignored when another one has taken the session over. */
  ready(attachment: Attachment): void {
    if (this.attachment === attachment && !this.#deps.isAudited)
      this.#input.follow(attachment.peer.straightWay ?? null);
  }

  /** Resolves when it is over. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Ends every process and forgets the session. */
  end(): void {
    if (this.#state.type === "over") return;
    this.#input.follow(null);
    if (this.#state.type === "detached") this.#state.expiry.cancel();
    this.#state = { type: "over" };
    this.listeners.close();
    for (const slot of this.#slots.values()) {
      if (slot.type === "started") this.#endForGood(slot.entry);
      else void slot.started.then((entry) => entry && this.#endForGood(entry));
    }
    this.#slots.clear();
    for (const process of this.#outlived) endProcess(process);
    this.#outlived = [];
    this.#ended.resolve();
    this.#deps.onOver(this);
  }

  /**
   * Starts a process. The caller begins its events with the returned function, once the answer is on its way: no
   * notification may come before it.
   */
  async start(params: StartParams): Promise<{ entry: SessionProcess; begin: () => void }> {
    const { processId } = params;
    if (this.#slots.has(processId)) throw invalidRequest(`process ${processId} already exists`);
    this.#refuseTooMany();
    const starting = Promise.withResolvers<SessionProcess | null>();
    this.#slots.set(processId, { type: "starting", started: starting.promise });
    return this.#input.inOrder(processId, async () => {
      try {
        const { handles, ownerId } = this.#deps;
        const { lifetime = "session", terminalQueries, recordInput } = params;
        const handle = lifetime === "kept" ? handles.draw() : undefined;
        const keptFor = handle === undefined ? undefined : { sessionId: this.id, ownerId, handle };
        const process = await this.#deps.backend.start({ ...params, keptFor, sandboxScope: this });
        const shared = new SharedProcess(process, {
          ...{ handles, ownerId, lifetime, handle, terminalQueries },
          recordsInput: recordInput ?? false,
        });
        process.kept?.noteSession({ hasLeft: false, attachments: this.#attachments });
        const entry = this.#entryOf(shared, processId, "owner");
        if (this.#slots.has(processId)) {
          this.#slots.set(processId, { type: "started", entry });
          // By the ordered way all input is seen; a person at a terminal is not faster than that.
          if (terminalQueries === undefined && !recordInput) this.#input.started(process);
        }
        starting.resolve(entry);
        return { entry, begin: () => this.#begin(entry) };
      } catch (error) {
        this.#slots.delete(processId);
        starting.resolve(null);
        throw error;
      }
    });
  }

  /**
   * Makes a process of another session known in this one, or changes the role of one that is. The caller begins its
   * events with the returned function, once the answer is on its way.
   */
  attachProcess(
    shared: SharedProcess,
    { role, processId = shared.handle, afterSeq = 0 }: AttachOptions,
  ): { entry: SessionProcess; begin: () => void } {
    const known = this.#entryFor(shared);
    if (known?.role === "owner")
      throw invalidRequest(
        `process ${shared.handle} is this session's own, its process id is ${known.processId}`,
      );
    if (known) {
      if (known.processId !== processId)
        throw invalidRequest(
          `process ${shared.handle} is attached already, its process id is ${known.processId}`,
        );
      known.changeRole(role);
      return { entry: known, begin: () => undefined };
    }
    if (this.#slots.has(processId)) throw invalidRequest(`process ${processId} already exists`);
    this.#refuseTooMany();
    const entry = this.#entryOf(shared, processId, role);
    this.#slots.set(processId, { type: "started", entry });
    return { entry, begin: () => this.#beginAttached(entry, afterSeq) };
  }

  /** Ends an attachment, or leaves a process of lifetime `server` to the server; the process goes on. */
  detachProcess(processId: string): void {
    const slot = this.#slots.get(processId);
    if (slot?.type !== "started") throw this.unknown(processId);
    const { entry } = slot;
    if (entry.role === "owner" && !entry.shared.outlivesSession)
      throw invalidRequest(
        `process ${processId} is this session's own and ends with it; start it with the lifetime \`server\` to leave it running`,
      );
    this.#drop(entry);
    this.#leave(entry);
  }

  /** The process of this id, once it has started; null when there is none. */
  async find(processId: string): Promise<HostProcess | null> {
    const slot = this.#slots.get(processId);
    if (!slot) return null;
    const entry = slot.type === "started" ? slot.entry : await slot.started;
    return entry?.process ?? null;
  }

  /** Like `find`, for what a viewer may not do. */
  async steered(processId: string): Promise<HostProcess | null> {
    const process = await this.find(processId);
    const slot = this.#slots.get(processId);
    if (slot?.type === "started") this.#refuseViewer(slot.entry);
    return process;
  }

  #refuseViewer({ processId, role }: SessionProcess): void {
    if (role === "viewer")
      throw invalidRequest(
        `process ${processId} is attached to as a viewer, who may only read; attach to it as driver to do this`,
      );
  }

  async get(processId: string): Promise<HostProcess> {
    const process = await this.find(processId);
    if (!process) throw this.unknown(processId);
    return process;
  }

  async read(processId: string, params: ReadParams, context: CallContext): Promise<ReadResult> {
    return (await this.entry(processId)).read(params, context);
  }

  /** The process of this id with what this session knows of it, once it has started. */
  async entry(processId: string): Promise<SessionProcess> {
    const slot = this.#slots.get(processId);
    const entry = slot?.type === "starting" ? await slot.started : slot?.entry;
    if (!entry) throw this.unknown(processId);
    return entry;
  }

  /** A session of an earlier server may have had it. */
  unknown(processId: string): RequestError {
    const more = this.#isRestored && this.isExtended ? `; ${notOfThis(this.#deps.generation)}` : "";
    return invalidRequest(`unknown process id ${processId}${more}`);
  }

  /** Runs one of the calls that keep their order for a process. */
  inOrder<T>(processId: string, task: (process: HostProcess | null) => Promise<T>): Promise<T> {
    return this.#inOrder(processId, (entry) => task(entry?.process ?? null));
  }

  /**
   * A call is for the process that its id names as it comes. At its turn there may be none: it never started, it was let
   * go of, or its id is another's by now. One whose start comes after the call is not waited for: it waits for the call.
   */
  #inOrder<T>(processId: string, task: (entry: SessionProcess | null) => Promise<T>): Promise<T> {
    const named = this.#slots.get(processId);
    return this.#input.inOrder(processId, async () => {
      const entry = named?.type === "starting" ? await named.started : named?.entry;
      if (!entry || !this.#holds(entry)) return task(null);
      this.#refuseViewer(entry);
      return task(entry);
    });
  }

  /** Input, in its order, and who gave it. */
  write(processId: string, chunk: Uint8Array, writeId: string | undefined): Promise<{ status: WriteStatus }> {
    return this.#inOrder(processId, async (entry) => {
      if (!entry) return { status: "unknownProcess" };
      const { process } = entry;
      const echoedBefore = process.ttyState()?.echo ?? true;
      const fed = process.feed(chunk, { writeId });
      const echo = echoedBefore && (process.ttyState()?.echo ?? true);
      const { status, isRepeated, isTaken = false } = await fed;
      if (status === "accepted" && entry.role === "owner") entry.shared.claims?.written();
      if (status === "accepted" && !isRepeated)
        this.#typed(entry, { bytes: chunk.length, echo, chunk: echo && isTaken ? chunk : null });
      return { status };
    });
  }

  #typed({ role, shared }: SessionProcess, input: Omit<TypedInput, "atMs">): void {
    const { number, ownerId } = this.#deps;
    const actor = { session: number, principal: ownerId, client: this.attachment?.clientName ?? "" };
    shared.typed({ ...actor, role: role === "owner" ? "owner" : "driver" }, input);
  }

  async terminate(processId: string, mode: TerminateMode): Promise<TerminateResult> {
    const process = await this.steered(processId);
    return process ? process.terminate(mode) : { running: false };
  }

  confirm(processId: string, seq: number): void {
    const slot = this.#slots.get(processId);
    if (slot?.type === "started") slot.entry.confirm(seq);
  }

  /** Its own processes; what it has attached to is listed where it belongs. */
  listings(): ProcessListing[] {
    return [...this.#entries()].filter(({ role }) => role === "owner").map(({ shared }) => shared.listing());
  }

  /** Its own processes that run, by the ids it has for them. */
  ownProcesses(): { processId: string; pid: number | null }[] {
    return [...this.#entries()]
      .filter(({ role, process }) => role === "owner" && isLive(process))
      .map(({ processId, process }) => ({ processId, pid: process.pid }));
  }

  #begin(entry: SessionProcess): void {
    switch (this.#state.type) {
      case "attached": {
        const { attachment } = this.#state;
        if (attachment.extensions.has("started")) {
          const { processId, pid } = entry.process;
          attachment.peer.notify({ method: "process/started", params: { processId, pid } });
        }
        entry.begin(attachment);
        return;
      }
      case "detached":
        entry.beginDetached(this.#state.extensions);
        return;
      case "over":
        this.#endForGood(entry);
        return;
    }
  }

  #beginAttached(entry: SessionProcess, afterSeq: number): void {
    // Detached again, or the session is over.
    if (!this.#holds(entry)) return;
    if (this.#state.type === "attached") entry.begin(this.#state.attachment, afterSeq);
    else if (this.#state.type === "detached") entry.beginDetached(this.#state.extensions);
  }

  #entryFor(shared: SharedProcess): SessionProcess | null {
    for (const entry of this.#entries()) if (entry.shared === shared) return entry;
    return null;
  }

  *#entries(): Generator<SessionProcess> {
    for (const slot of this.#slots.values()) if (slot.type === "started") yield slot.entry;
  }

  /** Refuses a process above the cap; those that ended do not count. */
  #refuseTooMany(): void {
    const { maxProcesses } = this.#deps.config;
    if (this.#liveAtMost >= maxProcesses) this.#liveAtMost = this.#countLive();
    if (this.#liveAtMost >= maxProcesses) {
      throw invalidRequest(
        `too many processes: this session may have ${maxProcesses} live processes at once; end one first, or let sessions have more with --max-processes`,
      );
    }
    this.#liveAtMost++;
  }

  #countLive(): number {
    let live = 0;
    for (const slot of this.#slots.values()) {
      if (slot.type === "starting" || isLive(slot.entry.process)) live++;
    }
    return live;
  }

  #entryOf(shared: SharedProcess, processId: string, role: "owner" | Role): SessionProcess {
    const { clock, turns, config } = this.#deps;
    const entry: SessionProcess = new SessionProcess(shared, {
      processId,
      role,
      clock,
      turns,
      onDetach: config.onDetach,
      extraBytes: shared.lifetime === "kept" ? KEPT_RETAINED_BYTES : config.retainedOutputBytes,
      onProgress: () => this.#considerForgetting(entry),
      onShared: () => this.#input.forget(processId),
    });
    const stop = shared.process.log.listen(() => {
      if (!shared.isOver) return;
      stop();
      this.#considerForgetting(entry);
    });
    return entry;
  }

  /**
   * A closed process stays readable for a while, then its id is free again. The time begins when its client has been
   * sent everything, and has confirmed it where it does so: one that is slow, or behind a dead wire, must not lose the end.
   */
  #considerForgetting(entry: SessionProcess): void {
    if (this.#forgetting.has(entry) || !this.#holds(entry) || !entry.isDelivered) return;
    const forget = () => {
      this.#forgetting.delete(entry);
      if (!this.#holds(entry) || !entry.isDelivered) return;
      this.#drop(entry);
      this.#leave(entry);
      if (entry.role !== "owner" || entry.shared.outlivesSession) return;
      const { true: left = [], false: over = [] } = Object.groupBy(
        [...this.#outlived, entry.process],
        ({ hasLeft }) => `${hasLeft}` as const,
      );
      this.#outlived = left;
      // Nothing of them can be found any more; what hides from us ends at the latest with them.
      for (const process of over) endProcess(process);
    };
    this.#forgetting.set(entry, this.#deps.clock.after(CLOSED_PROCESS_KEPT_MS, forget, { keepAlive: false }));
  }

  /** Its id is free again. */
  #drop(entry: SessionProcess): void {
    this.#slots.delete(entry.processId);
    this.#input.leave(entry.processId);
    this.#forgetting.get(entry)?.cancel();
    this.#forgetting.delete(entry);
  }

  /** Lets go of a process. One that may outlive the session is the server's from now on. */
  #leave(entry: SessionProcess): void {
    if (entry.role === "owner" && entry.shared.outlivesSession) {
      this.#deps.held.hold(entry.shared);
      entry.process.kept?.noteSession({ hasLeft: true, attachments: this.#attachments });
    }
    entry.forget();
  }

  /** False for one that was forgotten; its id may name another process by now. */
  #holds(entry: SessionProcess): boolean {
    if (this.#state.type === "over") return false;
    const slot = this.#slots.get(entry.processId);
    return slot?.type === "started" && slot.entry === entry;
  }

  #endForGood(entry: SessionProcess): void {
    this.#forgetting.get(entry)?.cancel();
    this.#forgetting.delete(entry);
    this.#leave(entry);
    if (entry.role === "owner" && !entry.shared.outlivesSession) endProcess(entry.process);
  }
}

function isLive({ log }: HostProcess): boolean {
  return log.exit === null && log.failure === null;
}

function endProcess(process: HostProcess): void {
  void process.end("sessionExpired", { type: "force" }).catch(() => undefined);
}
