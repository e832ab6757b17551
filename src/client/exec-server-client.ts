import type { Clock } from "../async/clock.ts";
import { systemClock } from "../async/clock.ts";
import { randomId } from "../base/random-uuid.ts";
import type { Connection } from "../connection/connection.ts";
import { asked } from "../exec/call-error.ts";
import type {
  CallOptions,
  ProcessListing,
  ProcessTree,
  StartParams,
  TerminateMode,
  TerminateResult,
} from "../exec/exec-process.ts";
import type { EventLogLimits } from "../exec/log/event-log.ts";
import type { Trace } from "../protocol/envelope.ts";
import type { DisconnectedError } from "../protocol/errors.ts";
import type { InProcessServer } from "../protocol/in-process.ts";
import type { EnvironmentInfo, Extension, MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";
import type { Connect } from "./caller.ts";
import { RemoteFiles } from "./files/remote-files.ts";
import { RemoteForwards } from "./network/remote-forwards.ts";
import { RemoteHttp } from "./network/remote-http.ts";
import type { AttachedProcess, AttachOptions, Role } from "./process/attached-process.ts";
import { type ListOptions, RemoteBackend } from "./process/remote-backend.ts";
import type { RemoteProcess } from "./process/remote-process.ts";
import { explainingStart } from "./process/start-error.ts";
import { CommandSessions, type ExecServerEvent } from "./process/v0-client.ts";
import { InProcessCaller } from "./rpc/in-process-channel.ts";
import { RpcCaller } from "./rpc/json-rpc-channel.ts";
import { connecting } from "./session/connect-error.ts";
import { DEFAULT_RECONNECT_POLICY, type ReconnectPolicy } from "./session/reconnect-policy.ts";
import { Link, type LinkCallOptions, type LinkListener } from "./session/reconnecting-session.ts";
import { explainedCall } from "./unsupported.ts";

/** The number of the first exec-servers for both: long enough for a live server, short enough for a missing one. */
export const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
export const DEFAULT_INITIALIZE_TIMEOUT_MS = 10_000;

/** The states of the connection during the life of a client. */
export type ConnectionState =
  | { type: "connected" }
  | { type: "reconnecting"; reason: string | null }
  | { type: "disconnected"; error: DisconnectedError };

export interface ExecServerClientOptions {
  /** The name of the client in the server's log. Default `procwire`. */
  clientName?: string;
  /** How long the server may take to answer `initialize`. Default 10 s. */
  initializeTimeoutMs?: number;
  /** Ends the attempt to connect. A client that is connected is ended by `close`. */
  signal?: AbortSignal;
  /**
   * A lost connection is recovered from: the session is resumed below the live handles. `false` makes a loss final.
   * Default: tries for 25 s, where the transport can be opened again.
   */
  reconnect?: boolean | Partial<ReconnectPolicy>;
  /** Resumes the session of an earlier client instead of opening a new one. */
  resumeSessionId?: string | undefined;
  /** With `resumeSessionId`: takes the session even if another connection is attached to it; that connection is closed. */
  takeOver?: boolean;
  onConnectionState?: ((state: ConnectionState) => void) | undefined;
  /** How much of a process's output the client itself keeps. */
  logLimits?: Partial<EventLogLimits> | undefined;
  /**
   * The span that a call belongs to, sent with it: what a W3C propagator writes. Not sent with `process/write`.
   *
   * @example
   * const trace = () => { const carrier = {}; propagation.inject(context.active(), carrier); return carrier; };
   */
  trace?: (() => Trace | undefined) | undefined;
  clock?: Clock;
  newId?: () => string;
}

export interface ShareOptions extends CallOptions {
  role: Role;
  ttlMs: number;
}

/** Options that depend on the transport. */
export interface Transport {
  connect: Connect;
  /** It can be opened again after a loss. */
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
  /** Starts and lists processes; the same interface as this machine's own backend. */
  readonly backend: RemoteBackend;
  /** The files of the server's host. */
  readonly files: RemoteFiles;
  /** HTTP requests from the server's host. */
  readonly http: RemoteHttp;
  /** TCP streams from and to the server's machine. */
  readonly forwards: RemoteForwards;
  readonly #commands: CommandSessions;
  readonly #onState: (state: ConnectionState) => void;
  #link: Link | null = null;

  protected constructor(options: ExecServerClientOptions) {
    const link = () => this.#open;
    const newId = options.newId ?? randomId;
    const clock = options.clock ?? systemClock;
    this.backend = new RemoteBackend({ link, clock, newId, logLimits: options.logLimits });
    this.files = new RemoteFiles(link, newId, clock);
    this.http = new RemoteHttp(link, newId);
    this.forwards = new RemoteForwards(link, newId);
    this.#commands = new CommandSessions(link);
    this.#onState = options.onConnectionState ?? (() => undefined);
  }

  /**
   * Over any connection: `open` is called for the first one and, where it may be, again after a loss.
   *
   * @example
   * const client = await ExecServerClient.connect(() => myConnection(), { reconnect: true });
   */
  static connect(
    open: (signal: AbortSignal) => Connection | Promise<Connection>,
    options: ExecServerClientOptions = {},
  ): Promise<ExecServerClient> {
    const connect: Connect = async (events, signal) => new RpcCaller(await open(signal), events);
    return ExecServerClient.over({ connect, canReconnect: true }, options);
  }

  /**
   * To a server in this program: typed calls, no JSON.
   *
   * @example
   * const client = await ExecServerClient.connectInProcess(server);
   */
  static connectInProcess(
    server: InProcessServer,
    options: ExecServerClientOptions = {},
  ): Promise<ExecServerClient> {
    const connect: Connect = async (events) => new InProcessCaller(server, events);
    return ExecServerClient.over({ connect, canReconnect: false }, options);
  }

  /** @internal */
  protected static async over(
    transport: Transport,
    options: ExecServerClientOptions,
  ): Promise<ExecServerClient> {
    const client = new ExecServerClient(options);
    const settings = {
      connect: transport.connect,
      clientName: options.clientName ?? "procwire",
      initializeTimeoutMs: options.initializeTimeoutMs ?? DEFAULT_INITIALIZE_TIMEOUT_MS,
      reconnect: transport.canReconnect ? reconnectPolicy(options.reconnect) : null,
      clock: options.clock ?? systemClock,
      resumeSessionId: options.resumeSessionId ?? null,
      takeOver: options.takeOver ?? false,
      trace: options.trace,
    };
    const open = () => Link.open(settings, client.#listener(), options.signal);
    client.#link = await connecting(open, options.signal);
    client.#onState({ type: "connected" });
    return client;
  }

  /** Null with a server of the first generation. Give it to a later client as `resumeSessionId`. */
  get sessionId(): string | null {
    return this.#open.server.sessionId;
  }

  /** Which of the optional parts of the protocol the server granted. */
  get extensions(): ReadonlySet<Extension> {
    return this.#open.server.granted;
  }

  /** False with a server that lacks what procwire adds to the protocol. */
  get isExtended(): boolean {
    return this.#open.server.extended;
  }

  /** Starts a process. A failure says what was missing: the program, its shell, its interpreter or its directory. */
  start(params: StartParams): Promise<RemoteProcess> {
    const { argv, cwd } = params;
    const exists = (path: string) => this.files.exists(path);
    return explainingStart({ argv, cwd, exists }, () => this.backend.start(params));
  }

  /**
   * Attaches to a process of another session of the same principal (an operator: of any) by its handle.
   *
   * @example
   * const process = await client.attach("k3v7q2mfa5zt", { role: "driver" });
   * await process.write(Buffer.from("ls\n"));
   * await process.detach();
   */
  attach(handle: string, options?: AttachOptions): Promise<AttachedProcess> {
    return this.backend.attachTo(handle, options);
  }

  /** Sends a signal to a process of the same principal by its handle, or ends it: without a mode, by force. */
  kill(
    handle: string,
    options: { signal?: string | undefined; mode?: TerminateMode | undefined } = {},
  ): Promise<TerminateResult> {
    return this.call("process/kill", { handle, ...options }, { resend: "unsent" });
  }

  /** A process of the same principal and its descendants, by its handle: what they are and what they use just now. */
  tree(handle: string, options?: CallOptions): Promise<ProcessTree> {
    return this.call("process/tree", { handle }, options);
  }

  /** A token that lets its bearer watch, or drive, one process and nothing else, until its time is over or the process ends. */
  share(handle: string, options: ShareOptions): Promise<ResultOf<"process/share">> {
    const { signal, ...share } = options;
    return this.call("process/share", { handle, ...share }, { signal });
  }

  list(options?: ListOptions): Promise<ProcessListing[]> {
    return this.backend.list(options);
  }

  /** What kind of host the server runs on. */
  async info(options: CallOptions = {}): Promise<EnvironmentInfo> {
    options.signal?.throwIfAborted();
    const { environmentInfo, extended } = this.#open.server;
    // The handshake of a procwire server leaves out facts that take time to find out, such as its sandboxes.
    return environmentInfo && !extended ? environmentInfo : this.call("environment/info", {}, options);
  }

  /** Any method of the protocol. A call that a lost connection left without an answer is sent again. */
  call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options: CallOptions & Pick<LinkCallOptions<M>, "timeoutMs" | "resend"> = {},
  ): Promise<ResultOf<M>> {
    return asked({ method }, () => explainedCall(this.#open, method, params, options));
  }

  // ---- the first generation, as the seeds have it

  /** Starts a process that lives as long as this connection; the server chooses its id. */
  exec(params: ParamsOf<"command/exec">, options?: CallOptions): Promise<{ sessionId: string }> {
    return this.#commands.exec(params, options);
  }

  /** Writes to a terminal process started by `exec`. */
  write(sessionId: string, bytes: Uint8Array, options?: CallOptions): Promise<{ accepted: boolean }> {
    return this.#commands.write(sessionId, bytes, options);
  }

  /** Ends a process started by `exec`. */
  terminate(sessionId: string, options?: CallOptions): Promise<{ running: boolean }> {
    return this.#commands.terminate(sessionId, options);
  }

  /**
   * What processes started by `exec` tell from now on.
   *
   * @example
   * const events = client.eventReceiver();
   * const { sessionId } = await client.exec({ argv: ["date"], cwd: "/", env: {}, tty: false });
   * for await (const event of events) if (event.type === "exited") break;
   */
  eventReceiver(): AsyncIterableIterator<ExecServerEvent> {
    return this.#commands.receiver();
  }

  /**
   * Ends the connection. The session and its processes live on at the server for as long as it keeps detached
   * sessions (30 s by default); end processes that should not.
   */
  async close(): Promise<void> {
    this.#link?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #open(): Link {
    if (!this.#link) throw new Error("the client is not connected yet");
    return this.#link;
  }

  #listener(): LinkListener {
    return {
      notified: (notification) => {
        this.backend.notified(notification);
        if (notification.method.startsWith("process/")) return;
        this.#commands.notified(notification);
        this.files.notified(notification);
        this.http.notified(notification);
        this.forwards.notified(notification);
      },
      lost: (reason) => {
        this.#commands.lost();
        this.http.lost(reason);
        this.forwards.lost(reason);
        this.#onState({ type: "reconnecting", reason });
      },
      resumed: () => {
        this.backend.resumed();
        this.files.resumed();
        this.forwards.resumed();
        this.#onState({ type: "connected" });
      },
      failed: (error) => {
        this.backend.failed(error);
        this.#commands.failed();
        this.files.failed();
        this.http.lost(error.message);
        this.forwards.lost(error.message);
        this.#onState({ type: "disconnected", error });
      },
    };
  }
}

function reconnectPolicy(option: ExecServerClientOptions["reconnect"]): ReconnectPolicy | null {
  if (option === false) return null;
  return { ...DEFAULT_RECONNECT_POLICY, ...(typeof option === "object" && option) };
}
