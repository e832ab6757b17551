import { type Clock, systemClock } from "../async/clock.ts";
import { randomUuid } from "../base/random-uuid.ts";
import type { Connection } from "../connection/connection.ts";
import { withCallErrors } from "../exec/call-error.ts";
import type {
  CallOptions,
  ProcessConnections,
  ProcessListing,
  ProcessTree,
  ShareEntry,
  ShareResult,
  StartParams,
  TerminateMode,
  TerminateResult,
} from "../exec/exec-process.ts";
import type { EventLogLimits } from "../exec/log/event-log.ts";
import type { InputData } from "../exec/options/input-bytes.ts";
import type { OptionKind } from "../exec/options/option-schema.ts";
import { callback, checkArgument, checkOptions, nonEmptyText } from "../exec/options/option-schema.ts";
import { checkCall } from "../exec/options/process-checks.ts";
import type { Trace } from "../protocol/envelope.ts";
import type { DisconnectedError } from "../protocol/errors.ts";
import type { InProcessServer } from "../protocol/in-process.ts";
import type { EnvironmentInfo, Extension, MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";
import { checkProtocolCall, clientOptions, killOptions, serverKind, shareOptions } from "./client-options.ts";
import { RemoteFiles } from "./files/remote-files.ts";
import { RemoteForwards } from "./network/remote-forwards.ts";
import { RemoteHttp } from "./network/remote-http.ts";
import type { AttachedProcess, AttachOptions, AttachRole } from "./process/attached-process.ts";
import { type ListOptions, RemoteBackend } from "./process/remote-backend.ts";
import type { RemoteProcess } from "./process/remote-process.ts";
import { withStartErrors } from "./process/start-error.ts";
import { type ExecServerEvent, V0Client } from "./process/v0-client.ts";
import { InProcessChannel } from "./rpc/in-process-channel.ts";
import { JsonRpcChannel } from "./rpc/json-rpc-channel.ts";
import type { OpenChannel } from "./rpc/rpc-channel.ts";
import { callInAnySession } from "./rpc/unsupported-method.ts";
import { withConnectErrors } from "./session/connect-error.ts";
import { DEFAULT_RECONNECT_POLICY, type ReconnectPolicy } from "./session/reconnect-policy.ts";
import type { ResendPolicy, SessionOptions } from "./session/reconnecting-session.ts";
import { ReopeningSession, type ReopeningSessionEvents } from "./session/reopening-session.ts";

/** Timeouts of the v0 exec-server: long enough for a live server, short enough for a missing one. */
export const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
export const DEFAULT_INITIALIZE_TIMEOUT_MS = 10_000;

/**
 * State of the connection of a client.
 *
 * - `connected`: a session is open: the first one, the resumed one, or a new one in place of a lost one
 * - `reconnecting`: the connection was lost; calls wait until the client has resumed the session
 * - `sessionLost`: the session was lost with its processes; the next call opens a new session
 * - `disconnected`: the session was lost and no new one follows; every call fails
 */
export type ConnectionState =
  | { type: "connected" }
  | { type: "reconnecting"; reason: string | null }
  | { type: "sessionLost"; reason: string; error: DisconnectedError }
  | { type: "disconnected"; error: DisconnectedError };

export interface ExecServerClientOptions {
  /** Name of the client in the server's log. Default `procwire`. */
  clientName?: string;
  /** Maximum time until the `initialize` result arrives. Default 10 s. */
  initializeTimeoutMs?: number;
  /** Aborts the attempt to connect. `close` ends a connected client. */
  signal?: AbortSignal;
  /**
   * Reconnects after a lost connection and resumes the session; existing process objects stay valid. If the session is
   * lost, the next call opens a new one. `false` makes a loss final. Default: tries for 25 s, if the transport can be
   * opened again.
   */
  reconnect?: boolean | Partial<ReconnectPolicy> | undefined;
  /** Resumes the session of an earlier client instead of opening a new one. */
  resumeSessionId?: string | undefined;
  /** With `resumeSessionId`: resumes the session even if another connection has it; that connection is closed. */
  takeOver?: boolean;
  onConnectionState?: ((state: ConnectionState) => void) | undefined;
  /** Limits of the client's own event log of each process. */
  logLimits?: Partial<EventLogLimits> | undefined;
  /**
   * Returns the span that is sent with a call, as a W3C propagator writes it. Not sent with `process/write`.
   *
   * @example
   * const trace = () => { const carrier = {}; propagation.inject(context.active(), carrier); return carrier; };
   */
  trace?: (() => Trace | undefined) | undefined;
  clock?: Clock;
  newId?: () => string;
}

/** How `kill` ends a process: a signal is sent, a mode terminates the process tree. Default: mode force. */
export interface KillOptions {
  /** Signal name such as `SIGTERM`. Excludes `mode`. */
  signal?: string | undefined;
  mode?: TerminateMode | undefined;
}

/** Options of `call`. */
export interface ProtocolCallOptions extends CallOptions {
  timeoutMs?: number | undefined;
  /** Behavior after a lost connection. `unsent` sends the call again only if no connection had it. Default: `always`. */
  resend?: ResendPolicy | undefined;
}

export interface ShareOptions extends CallOptions {
  role: AttachRole;
  ttlMs: number;
}

/** Transport of a client. */
export interface ClientTransport {
  connect: OpenChannel;
  /** True if the transport can be opened again after a loss. */
  canReconnect: boolean;
}

/**
 * A client of an exec-server, over any transport.
 *
 * @example
 * await using client = await ExecServerClient.connectWebSocket({ url: "ws://127.0.0.1:7070" });
 * const process = await client.start({
 *   processId: "build", argv: ["make"], cwd: "/src", env: { PATH: "/usr/bin:/bin" }, tty: false,
 * });
 * for await (const event of process.events())
 *   if (event.type === "output") console.log(new TextDecoder().decode(event.chunk));
 */
export class ExecServerClient implements AsyncDisposable {
  /** Starts and lists processes; the same interface as the local backend. */
  readonly backend: RemoteBackend;
  /** Files of the server's host. */
  readonly files: RemoteFiles;
  /** HTTP requests from the server's host. */
  readonly http: RemoteHttp;
  /** TCP streams from and to the server's host. */
  readonly forwards: RemoteForwards;
  readonly #v0Client: V0Client;
  readonly #onState: (state: ConnectionState) => void;
  readonly #sessions: ReopeningSession;

  protected constructor(options: ExecServerClientOptions) {
    const newId = options.newId ?? randomUuid;
    const clock = options.clock ?? systemClock;
    const sessions = new ReopeningSession(this.#events());
    this.#sessions = sessions;
    this.backend = new RemoteBackend({ sessions, clock, newId, logLimits: options.logLimits });
    this.files = new RemoteFiles(sessions, newId, clock);
    this.http = new RemoteHttp(sessions, newId);
    this.forwards = new RemoteForwards(sessions, newId);
    this.#v0Client = new V0Client(sessions);
    this.#onState = options.onConnectionState ?? (() => undefined);
  }

  /**
   * Connects over any connection. `open` is called for the first connection and, with `reconnect`, again after a loss.
   *
   * @example
   * const client = await ExecServerClient.connect(() => myConnection(), { reconnect: true });
   */
  static async connect(
    open: (signal: AbortSignal) => Connection | Promise<Connection>,
    options: ExecServerClientOptions = {},
  ): Promise<ExecServerClient> {
    checkArgument("connect", "open", open, callback);
    const connect: OpenChannel = async (events, signal) => new JsonRpcChannel(await open(signal), events);
    return ExecServerClient.withTransport({ connect, canReconnect: true }, options, "connect");
  }

  /**
   * Connects to a server in this process: typed calls, no JSON.
   *
   * @example
   * const client = await ExecServerClient.connectInProcess(server);
   */
  static async connectInProcess(
    server: InProcessServer,
    options: ExecServerClientOptions = {},
  ): Promise<ExecServerClient> {
    checkArgument("connectInProcess", "server", server, serverKind);
    const connect: OpenChannel = async (events) => new InProcessChannel(server, events);
    return ExecServerClient.withTransport({ connect, canReconnect: false }, options, "connectInProcess");
  }

  /** @internal */
  protected static async withTransport(
    transport: ClientTransport,
    options: ExecServerClientOptions,
    operation: string,
    schema: OptionKind = clientOptions,
  ): Promise<ExecServerClient> {
    checkOptions(operation, options, schema);
    const client = new ExecServerClient(options);
    const open = () => client.#sessions.open(sessionOptions(transport, options), options.signal);
    await withConnectErrors(open, options.signal);
    return client;
  }

  /** Id of the current session; null with a v0 server. Pass it to a later client as `resumeSessionId`. */
  get sessionId(): string | null {
    return this.#sessions.current.server.sessionId;
  }

  /** Extensions of the protocol that the server granted. */
  get extensions(): ReadonlySet<Extension> {
    return this.#sessions.current.server.grantedExtensions;
  }

  /** False if the server lacks procwire's extensions of the protocol. */
  get isExtended(): boolean {
    return this.#sessions.current.server.isExtended;
  }

  /** Starts a process. An error names the missing file: the executable, its shell, its interpreter or its directory. */
  start(params: StartParams): Promise<RemoteProcess> {
    const exists = (path: string) => this.files.exists(path);
    return withStartErrors({ ...params, exists }, () => this.backend.start(params));
  }

  /**
   * Attaches to a process of another session of the same principal (for an operator: of any principal) by its handle.
   *
   * @example
   * const process = await client.attach("k3v7q2mfa5zt", { role: "driver" });
   * await process.write(Buffer.from("ls\n"));
   * await process.detach();
   */
  attach(handle: string, options?: AttachOptions): Promise<AttachedProcess> {
    return this.backend.attachByHandle(handle, options);
  }

  /** Sends a signal to a process of the same principal by its handle, or terminates it. Default mode: force. */
  async kill(handle: string, options: KillOptions = {}): Promise<TerminateResult> {
    checkArgument("kill", "handle", handle, nonEmptyText);
    checkOptions("kill", options, killOptions);
    return this.call("process/kill", { handle, ...options }, { resend: "unsent" });
  }

  /** Returns a process of the same principal and its descendants, with their current resource usage. */
  async tree(handle: string, options: CallOptions = {}): Promise<ProcessTree> {
    checkCall("tree", options, { handle });
    return this.call("process/tree", { handle }, options);
  }

  /** Returns the network targets of a process of the same principal, with the decisions of its proxy. */
  async connections(handle: string, options: CallOptions = {}): Promise<ProcessConnections> {
    checkCall("connections", options, { handle });
    return this.call("process/connections", { handle }, options);
  }

  /**
   * Creates a share token: its bearer may view or drive this one process until the token expires or the process ends.
   */
  async share(handle: string, options: ShareOptions): Promise<ShareResult> {
    checkArgument("share", "handle", handle, nonEmptyText);
    checkOptions("share", options, shareOptions);
    const { signal, ...share } = options;
    return this.call("process/share", { handle, ...share }, { signal });
  }

  /** Returns the share links of a process that are neither expired nor revoked. Their tokens are not included. */
  async listShares(handle: string, options: CallOptions = {}): Promise<ShareEntry[]> {
    checkCall("listShares", options, { handle });
    return (await this.call("process/listShares", { handle }, options)).shares;
  }

  /**
   * Invalidates a share link and closes the connections that use it. Returns false if the link was unknown, expired or
   * revoked before.
   */
  async revokeShare(handle: string, shareId: string, options: CallOptions = {}): Promise<boolean> {
    checkCall("revokeShare", options, { handle, shareId });
    return (await this.call("process/revokeShare", { handle, shareId }, options)).revoked;
  }

  list(options?: ListOptions): Promise<ProcessListing[]> {
    return this.backend.list(options);
  }

  /** Returns properties of the server's host. */
  async info(options: CallOptions = {}): Promise<EnvironmentInfo> {
    checkCall("info", options);
    options.signal?.throwIfAborted();
    const { environmentInfo, isExtended } = this.#sessions.current.server;
    // The handshake of a procwire server omits properties that take time to determine, such as sandboxes.
    return environmentInfo && !isExtended ? environmentInfo : this.call("environment/info", {}, options);
  }

  /**
   * Calls any method of the protocol. A call whose response was lost with the connection is sent again when the session
   * is resumed. A call that was in flight when the session was lost rejects.
   */
  call<M extends MethodName>(method: M, params: ParamsOf<M>, options: ProtocolCallOptions = {}): Promise<ResultOf<M>> {
    const check = () => checkProtocolCall(method, params, options);
    const call = () => callInAnySession(this.#sessions, method, params, options);
    return withCallErrors({ method: String(method) }, call, undefined, check);
  }

  // ---- calls of the v0 protocol, under their v0 names

  /** Starts a process that lives as long as this connection; the server chooses its id. */
  exec(params: ParamsOf<"command/exec">, options?: CallOptions): Promise<{ sessionId: string }> {
    return this.#v0Client.exec(params, options);
  }

  /** Writes to a terminal process started by `exec`. */
  write(sessionId: string, data: InputData, options?: CallOptions): Promise<{ accepted: boolean }> {
    return this.#v0Client.write(sessionId, data, options);
  }

  /** Terminates a process started by `exec`. */
  terminate(sessionId: string, options?: CallOptions): Promise<{ running: boolean }> {
    return this.#v0Client.terminate(sessionId, options);
  }

  /**
   * Returns the events of processes started by `exec`, from now on.
   *
   * @example
   * const events = client.eventReceiver();
   * const { sessionId } = await client.exec({ argv: ["date"], cwd: "/", env: {}, tty: false });
   * for await (const event of events) if (event.type === "exited") break;
   */
  eventReceiver(): AsyncIterableIterator<ExecServerEvent> {
    return this.#v0Client.receiver();
  }

  /**
   * Closes the connection. The session and its processes live on until the server's session TTL expires (30 s by
   * default). Terminate processes that must not live on. Later calls reject.
   */
  async close(): Promise<void> {
    this.#sessions.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #events(): ReopeningSessionEvents {
    return {
      onNotification: (notification) => {
        this.backend.onNotification(notification);
        if (notification.method.startsWith("process/")) return;
        this.#v0Client.onNotification(notification);
        this.files.onNotification(notification);
        this.http.onNotification(notification);
        this.forwards.onNotification(notification);
      },
      onRequest: ({ params }, signal) => this.backend.onPolicyRequest(params, signal),
      onDisconnect: (reason) => {
        this.#v0Client.onDisconnect();
        this.http.onDisconnect(reason);
        this.forwards.onDisconnect(reason);
        this.#onState({ type: "reconnecting", reason });
      },
      onResumed: () => {
        this.backend.onResumed();
        this.files.onConnectionChanged();
        this.forwards.onConnected();
        this.#onState({ type: "connected" });
      },
      onOpened: () => {
        this.forwards.onConnected();
        this.#onState({ type: "connected" });
      },
      onLost: (error) => {
        this.#v0Client.onLost();
        this.#rejectLost(error);
        this.#onState({ type: "sessionLost", reason: error.lossReason ?? "connection lost", error });
      },
      onEnded: (error) => {
        this.#v0Client.onEnded();
        this.#rejectLost(error);
        this.#onState({ type: "disconnected", error });
      },
    };
  }

  /** Fails everything that belongs to the lost session. */
  #rejectLost(error: DisconnectedError): void {
    this.backend.onLost(error);
    this.files.onLost(error);
    this.http.onDisconnect(error.lossReason);
    this.forwards.onLost(error.lossReason);
  }
}

function sessionOptions({ connect, canReconnect }: ClientTransport, options: ExecServerClientOptions): SessionOptions {
  return {
    connect,
    clientName: options.clientName ?? "procwire",
    initializeTimeoutMs: options.initializeTimeoutMs ?? DEFAULT_INITIALIZE_TIMEOUT_MS,
    reconnect: canReconnect ? reconnectPolicy(options.reconnect) : null,
    clock: options.clock ?? systemClock,
    resumeSessionId: options.resumeSessionId ?? null,
    takeOver: options.takeOver ?? false,
    trace: options.trace,
  };
}

function reconnectPolicy(option: ExecServerClientOptions["reconnect"]): ReconnectPolicy | null {
  if (option === false) return null;
  return { ...DEFAULT_RECONNECT_POLICY, ...(typeof option === "object" && option) };
}
