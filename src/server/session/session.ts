import type { Clock } from "../../async/clock.ts";
import { KeyedQueue } from "../../async/keyed-queue.ts";
import type { HostBackend, HostProcess } from "../../exec/backend/host-backend.ts";
import { PERSISTENT_RETAINED_BYTES, type RestoredProcess } from "../../exec/backend/persistent-process.ts";
import type { ProcessNames } from "../../exec/backend/process-names.ts";
import { endWithSession, onceLogComplete } from "../../exec/backend/process-state.ts";
import type { SandboxScope, StartParams } from "../../exec/exec-process.ts";
import { invalidRequest, type RequestError } from "../../protocol/errors.ts";
import { isNotified } from "../../protocol/methods.ts";
import { ForwardListeners } from "../forward/forward-listeners.ts";
import { generationHint } from "../lifecycle/server-generation.ts";
import { NetworkMessages } from "../network/network-messages.ts";
import type { OpenQuestions } from "../network/open-questions.ts";
import type { ServerConfig } from "../server-config.ts";
import type { BackgroundProcesses } from "./background-processes.ts";
import { InputRouter } from "./input-router.ts";
import type { ProcessHandles } from "./process-handles.ts";
import { ProcessRetention } from "./process-retention.ts";
import { SessionConnection } from "./session-connection.ts";
import { SessionInput } from "./session-input.ts";
import { type SessionClient, SessionProcess } from "./session-process.ts";
import { SessionProcessTable } from "./session-process-table.ts";
import { type AttachRole, SharedProcess } from "./shared-process.ts";
import type { ViewerScheduler } from "./viewer-scheduler.ts";

export interface ServerSessionDeps {
  backend: HostBackend;
  clock: Clock;
  handles: ProcessHandles<SharedProcess>;
  names: ProcessNames;
  viewerScheduler: ViewerScheduler;
  /** Takes the processes that outlive the session. */
  background: BackgroundProcesses;
  questions: OpenQuestions;
  /** Whether the server has an audit log. */
  isAudited: boolean;
  /** Generation of the server. */
  generation: string;
  number: number;
  ownerId: string;
  /** Key of the scope of the token that opened the session; null if it grants everything. */
  ownerScope: string | null;
  config: ServerConfig;
  /** Called once, when the session can no longer be resumed. */
  onEnded: (session: Session) => void;
}

/** How a session attaches to a process of another session. */
export interface ProcessAttachOptions {
  role: AttachRole;
  /** Process id in the attaching session. Default: the handle. */
  processId?: string | undefined;
  /** Seq after which events are sent. Default: 0. */
  afterSeq?: number | undefined;
}

/** A process that a session has started or attached to. */
export interface AddedProcess {
  entry: SessionProcess;
  /**
   * Starts the delivery of events. Called after the response is queued, because no notification may precede it.
   * `drawnSeq` is the sequence number of the rendered screen in that response; earlier events are not sent.
   */
  begin: (drawnSeq?: number) => void;
}

/** A session: owns processes and survives its connection until the session TTL elapses. */
export class Session implements SandboxScope {
  readonly id: string;
  /** Id of the principal that opened the session. An operator who takes it over does not become its owner. */
  readonly ownerId: string;
  /** Key of the scope of the token that opened the session; null if it grants everything. */
  readonly ownerScope: string | null;
  /** Distinguishes the sessions of a server without revealing their ids. */
  readonly number: number;
  readonly #deps: ServerSessionDeps;
  readonly #connection: SessionConnection;
  readonly #processes: SessionProcessTable;
  readonly #retention: ProcessRetention;
  readonly #router: InputRouter;
  /** Ordered input of the session's processes. */
  readonly input: SessionInput;
  readonly #ended = Promise.withResolvers<void>();
  readonly #isRestored: boolean;
  /** Keeps file changes in order, also across a lost connection. */
  readonly fileChanges = new KeyedQueue<"changes">();
  /** Survive the connection. */
  readonly listeners = new ForwardListeners();

  /** Without a client, the session belongs to the previous server and waits until its client resumes it. */
  constructor(id: string, client: SessionClient | null, deps: ServerSessionDeps) {
    const { clock, config, isAudited, number, ownerId } = deps;
    this.id = id;
    this.ownerId = ownerId;
    this.ownerScope = deps.ownerScope;
    this.number = number;
    this.#deps = deps;
    this.#isRestored = client === null;
    this.#connection = new SessionConnection(client, {
      clock,
      detachedTtlMs: config.detachedSessionTtlMs,
      onExpired: () => this.end(),
    });
    this.#processes = new SessionProcessTable(config.maxProcesses);
    this.#retention = new ProcessRetention({
      clock,
      has: (entry) => this.#processes.has(entry),
      remove: (entry) => this.#remove(entry),
    });
    this.#router = new InputRouter({ isAudited });
    this.input = new SessionInput({
      processes: this.#processes,
      router: this.#router,
      actor: () => ({ session: number, principal: ownerId, client: this.client?.clientName ?? "" }),
    });
  }

  /** Restores a process that the previous server started for this session. */
  restore({ process, attachments, joinSandboxScope }: RestoredProcess, shared: SharedProcess): void {
    joinSandboxScope?.(this);
    const { processId } = process;
    const entry = this.#createEntry(shared, processId, "owner");
    this.#connection.restoreClientCount(attachments);
    this.#processes.restore(entry);
    this.#router.add(processId, shared);
    entry.detach();
    this.#retention.update(entry);
  }

  /** The client that has the session, or null while it is detached. */
  get client(): SessionClient | null {
    return this.#connection.client;
  }

  /** True if the client requested an extension. Only then may a response differ from the Codex exec-server. */
  get isExtended(): boolean {
    return (this.client?.extensions.size ?? 0) > 0;
  }

  /** Identifies the current or last client: the same for all its connections, another one after a takeover. */
  get attachmentId(): string {
    return String(this.#connection.clientCount);
  }

  /** Binds a new connection. It receives new events; the client reads the events it missed. */
  attach(client: SessionClient, kind: "same" | "another"): void {
    this.#connection.connect(client, kind);
    if (kind === "another") {
      for (const { role, process } of this.#processes.entries())
        if (role === "owner") this.#saveSession(process, { isReleased: false });
    }
    this.#router.setConnection(null);
    for (const entry of this.#processes.entries()) entry.resume(client, kind);
  }

  /** Enables direct input when the handshake is complete. Ignored if another connection has taken over. */
  ready(client: SessionClient): void {
    if (this.client === client) this.#router.setConnection(client.peer.directInput ?? null);
  }

  /** Handles a lost connection. Ignored if another connection has taken over. */
  detach(client: SessionClient): void {
    if (this.client !== client) return;
    this.#router.setConnection(null);
    if (this.#deps.config.detachedSessionTtlMs === 0) {
      this.end();
      return;
    }
    for (const entry of this.#processes.entries()) entry.detach();
    this.#connection.detach(client.extensions);
  }

  /** Evicts output that is pinned for a disconnected client while `isNeeded` returns true. */
  evictDetached(isNeeded: () => boolean): void {
    for (const entry of this.#processes.entries()) if (isNeeded()) entry.evictDetached();
  }

  /** Resolves when the session has ended. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Ends the session and its processes, except processes that outlive it. */
  end(): void {
    if (this.#connection.state.type === "ended") return;
    this.#router.setConnection(null);
    this.#connection.end();
    this.listeners.close();
    for (const entry of this.#processes.clear()) this.#endProcess(entry);
    this.#retention.endOrphans();
    this.#ended.resolve();
    this.#deps.onEnded(this);
  }

  async start(params: StartParams): Promise<AddedProcess> {
    const { processId } = params;
    const reservation = this.#processes.reserve(processId);
    return this.#router.runInOrder(processId, async () => {
      try {
        const network = params.networkProxy
          ? new NetworkMessages(processId, () => this.client, this.#deps.questions)
          : null;
        const shared = await this.#startShared({ ...params, ...network?.callbacks });
        const entry = this.#createEntry(shared, processId, "owner");
        if (reservation.complete(entry)) this.#router.add(processId, shared);
        const begin = () => {
          this.#startOwnDelivery(entry);
          network?.begin(shared);
        };
        return { entry, begin };
      } catch (error) {
        reservation.fail();
        throw error;
      }
    });
  }

  async #startShared(params: StartParams): Promise<SharedProcess> {
    const { ownerId } = this;
    const { handles, names, backend } = this.#deps;
    const { lifetime = "session", terminalQueries, recordInput: recordsInput = false, name } = params;
    const isPersistent = lifetime === "persistent";
    const handle = isPersistent || name !== undefined ? handles.generate() : undefined;
    const persistentOwner = isPersistent && handle !== undefined ? { sessionId: this.id, ownerId, handle } : undefined;
    const reservation = name !== undefined && handle !== undefined ? names.reserve(ownerId, name, handle) : null;
    const process = await backend
      .start({ ...params, ownerId, persistentOwner, sandboxScope: this })
      .catch((error: unknown) => {
        reservation?.release();
        throw error;
      });
    reservation?.releaseAtExit(process);
    const options = { handles, ownerId, lifetime, handle, terminalQueries, recordsInput };
    const shared = new SharedProcess(process, options);
    this.#saveSession(process, { isReleased: false });
    return shared;
  }

  /** Attaches to a process of another session, or changes the role of an earlier attachment. */
  attachProcess(
    shared: SharedProcess,
    { role, processId = shared.handle, afterSeq = 0 }: ProcessAttachOptions,
  ): AddedProcess {
    const known = this.#processes.findShared(shared);
    if (known?.role === "owner")
      throw invalidRequest(`process ${shared.handle} is this session's own, its process id is ${known.processId}`);
    if (known) {
      if (known.processId !== processId)
        throw invalidRequest(`process ${shared.handle} is attached already, its process id is ${known.processId}`);
      known.changeRole(role);
      return { entry: known, begin: () => undefined };
    }
    this.#processes.acquire(processId);
    const entry = this.#createEntry(shared, processId, role);
    this.#processes.add(entry);
    return { entry, begin: (drawnSeq) => this.#startAttachedDelivery(entry, drawnSeq ?? afterSeq) };
  }

  /** Ends an attachment, or releases a process of lifetime `server` to the server. The process continues. */
  detachProcess(processId: string): void {
    const entry = this.#processes.findStarted(processId);
    if (!entry) throw this.unknownProcessError(processId);
    if (entry.role === "owner" && !entry.shared.outlivesSession)
      throw invalidRequest(
        `process ${processId} is this session's own and ends with it; start it with the lifetime \`server\` to leave it running`,
      );
    this.#remove(entry);
  }

  /** Returns the process with this id, or null if it has not started. */
  findStarted(processId: string): SessionProcess | null {
    return this.#processes.findStarted(processId);
  }

  /** Resolves when the process with this id has started. Rejects if there is none. */
  async getProcess(processId: string): Promise<SessionProcess> {
    const entry = await this.#processes.find(processId);
    if (!entry) throw this.unknownProcessError(processId);
    return entry;
  }

  /** Like `getProcess`, but resolves to null if there is no such process, and rejects if this session is a viewer. */
  async findWritable(processId: string): Promise<HostProcess | null> {
    const entry = await this.#processes.find(processId);
    entry?.requireWritable();
    return entry?.process ?? null;
  }

  /** Returns the error for an unknown process id. In a restored session, the previous server may have known the id. */
  unknownProcessError(processId: string): RequestError {
    const hint = this.#isRestored && this.isExtended ? `; ${generationHint(this.#deps.generation)}` : "";
    return invalidRequest(`unknown process id ${processId}${hint}`, { reason: "unknownProcess" });
  }

  /** Returns the processes that the session has started, without those it attached to. */
  ownProcesses(): SharedProcess[] {
    const own = [...this.#processes.entries()].filter(({ role }) => role === "owner");
    return own.map(({ shared }) => shared);
  }

  #createEntry(shared: SharedProcess, processId: string, role: "owner" | AttachRole): SessionProcess {
    const { clock, viewerScheduler, config } = this.#deps;
    const entry: SessionProcess = new SessionProcess(shared, {
      processId,
      role,
      clock,
      scheduler: viewerScheduler,
      onDetach: config.onDetach,
      extraBytes: shared.lifetime === "persistent" ? PERSISTENT_RETAINED_BYTES : config.retainedOutputBytes,
      onProgress: () => this.#retention.update(entry),
      onSharingChanged: () => this.#router.update(processId),
    });
    onceLogComplete(shared.process, () => this.#retention.update(entry));
    return entry;
  }

  #startOwnDelivery(entry: SessionProcess): void {
    const { state } = this.#connection;
    switch (state.type) {
      case "connected": {
        const { peer, extensions } = state.client;
        const { processId, pid } = entry.process;
        if (isNotified("process/started", extensions))
          peer.notify({ method: "process/started", params: { processId, pid } });
        entry.start(state.client);
        return;
      }
      case "detached":
        entry.startDetached(state.extensions);
        return;
      case "ended":
        // The session ended during the start.
        this.#endProcess(entry);
        return;
    }
  }

  #startAttachedDelivery(entry: SessionProcess, afterSeq: number): void {
    // The client may have detached from the process again, or the session may have ended.
    if (!this.#processes.has(entry)) return;
    const { state } = this.#connection;
    if (state.type === "connected") entry.start(state.client, afterSeq);
    else if (state.type === "detached") entry.startDetached(state.extensions);
  }

  /** Frees the id of a process and releases the process. */
  #remove(entry: SessionProcess): void {
    this.#processes.remove(entry.processId);
    this.#router.remove(entry.processId);
    this.#release(entry);
  }

  /** Releases a process. The server takes over a process that outlives its session. */
  #release(entry: SessionProcess): void {
    this.#retention.cancel(entry);
    if (entry.role === "owner" && entry.shared.outlivesSession) {
      this.#deps.background.add(entry.shared);
      this.#saveSession(entry.process, { isReleased: true });
    }
    entry.forget();
  }

  #endProcess(entry: SessionProcess): void {
    this.#release(entry);
    if (entry.role === "owner" && !entry.shared.outlivesSession) endWithSession(entry.process);
  }

  /** Saves the session's state in the record of a persistent process, for the next server. */
  #saveSession({ persistent }: HostProcess, { isReleased }: { isReleased: boolean }): void {
    persistent?.saveSession({ isReleased, attachments: this.#connection.clientCount });
  }
}
