import type { Clock } from "../../async/clock.ts";
import { sleep } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { asked } from "../../exec/call-error.ts";
import type { CallOptions, ExecBackend, ProcessListing, StartParams } from "../../exec/exec-process.ts";
import type { EventLogLimits } from "../../exec/log/event-log.ts";
import { startUntil } from "../../exec/run/abortable-start.ts";
import {
  type DisconnectedError,
  ErrorCode,
  invalidParams,
  invalidRequest,
  RequestError,
} from "../../protocol/errors.ts";
import type { ParamsOf, ResultOf, ServerNotification } from "../../protocol/methods.ts";
import { isObject } from "../../protocol/schema.ts";
import type { Link } from "../session/reconnecting-session.ts";
import { isUnknown } from "../unknown-process.ts";
import { explainUnknownMethod, notSupported } from "../unsupported.ts";
import { toPathUri } from "../wire-path.ts";
import { AttachedProcess, type AttachOptions } from "./attached-process.ts";
import { ReleasedProcesses } from "./disposed-processes.ts";
import { STARTING_POLL_MS, STARTING_WITHIN_MS } from "./process-follower.ts";
import { RemoteProcess, type RemoteProcessDeps } from "./remote-process.ts";

/** TERM comes this long before KILL when this client ends a process that outlived its time. */
const TIMEOUT_GRACE_MS = 2000;
const NEVER = Number.POSITIVE_INFINITY;

export interface RemoteBackendDeps {
  link: () => Link;
  clock: Clock;
  newId: () => string;
  logLimits?: Partial<EventLogLimits> | undefined;
}

export interface ListOptions extends CallOptions {
  allSessions?: boolean | undefined;
}

/** The processes of one session on a server. */
export class RemoteBackend implements ExecBackend {
  readonly #deps: RemoteBackendDeps;
  /** Processes that may still have events. */
  readonly #processes = new Map<string, RemoteProcess>();
  readonly #released: ReleasedProcesses;
  #writes = 0;
  readonly #writerId: string;

  /** @internal */
  constructor(deps: RemoteBackendDeps) {
    this.#deps = deps;
    this.#writerId = deps.newId();
    this.#released = new ReleasedProcesses(deps.link);
  }

  /** Where processes run that nobody gave a directory: the server's own, as a `file:` URI. */
  get defaultCwd(): string {
    return this.#link.server.environmentInfo?.cwd ?? "file:///";
  }

  /** A failure has the server's text; `client.start` also finds out what was missing. */
  start(params: StartParams): Promise<RemoteProcess> {
    const { argv, signal } = params;
    return asked({ method: "process/start", argv }, () => startUntil(this.#start(params), signal));
  }

  /**
   * A handle on a process of this session that somebody else started, such as an earlier client whose session this
   * one resumed. It begins with what the server still retains.
   */
  attach(processId: string, { signal }: CallOptions = {}): Promise<RemoteProcess> {
    return asked({ method: "process/read" }, () => this.#attach(processId), signal);
  }

  /**
   * Attaches to a process of another session of the same principal by its handle. It begins with what the server still
   * retains. Attached to already: the same object, in the role that is asked for now.
   */
  attachTo(handle: string, options: AttachOptions = {}): Promise<AttachedProcess> {
    return asked({ method: "process/attach" }, () => this.#attachTo(handle, options), options.signal);
  }

  /** The processes of this session; with `allSessions` those of every session of a procwire server. */
  list({ signal, ...which }: ListOptions = {}): Promise<ProcessListing[]> {
    return asked({ method: "process/list" }, () => this.#list(which), signal);
  }

  async #start(params: StartParams): Promise<RemoteProcess> {
    params.signal?.throwIfAborted();
    const { processId } = params;
    if (params.limits && !this.#link.server.extended)
      throw invalidParams("limits cannot be enforced on this executor: its server does not know them");
    const { lifetime } = params;
    if (lifetime !== undefined && lifetime !== "session" && !this.#link.server.granted.has("attach"))
      throw invalidParams(
        `this server does not know the lifetime "${lifetime}": its processes end with their session`,
      );
    const wire = startParams(params);
    // One that does not know of claims leaves all questions to this client.
    if (wire.terminalQueries === "claimed" && !this.#link.server.granted.has("queryClaims"))
      wire.terminalQueries = "client";
    if (this.#processes.has(processId)) throw invalidRequest(`process ${processId} already exists`);
    // Registered before the request: some servers send events of a process before they answer its start.
    const process = this.#register(processId, params);
    // Keeps all output until the caller could subscribe: the answer may come late, after much output.
    const beginning = process.log.cursor({ holding: true });
    try {
      process.started(await this.#startOnce(wire, process));
    } catch (error) {
      this.#processes.delete(processId);
      process.log.dispose();
      throw explainUnknownMethod("process/start", error);
    }
    const endAfterMs = Math.min(params.timeoutMs ?? NEVER, params.maxAgeMs ?? NEVER);
    if (!this.#link.server.extended && endAfterMs !== NEVER) this.#endLater(process, endAfterMs);
    this.#deps.clock.after(0, () => beginning.close(), { keepAlive: false });
    return process;
  }

  async #attach(processId: string): Promise<RemoteProcess> {
    const known = this.#processes.get(processId);
    if (known) return known;
    const process = this.#register(processId, null);
    try {
      await process.follower.adopt();
    } catch (error) {
      this.#processes.delete(processId);
      throw error;
    }
    return process;
  }

  async #attachTo(handle: string, options: AttachOptions): Promise<AttachedProcess> {
    const { role = "viewer", processId = handle, size } = options;
    if (!this.#link.server.granted.has("attach")) throw notSupported("process/attach");
    const known = this.#processes.get(processId);
    if (known instanceof AttachedProcess && known.handle === handle) {
      await known.attachAs(role, size);
      return known;
    }
    if (known) throw invalidRequest(`process ${processId} already exists`);
    const process = this.#registered(new AttachedProcess(handle, processId, this.#processDeps(processId)));
    const beginning = process.log.cursor({ holding: true });
    try {
      await process.attachAs(role, size);
    } catch (error) {
      this.#processes.delete(processId);
      process.log.dispose();
      throw explainUnknownMethod("process/attach", error);
    }
    process.follower.started();
    this.#deps.clock.after(0, () => beginning.close(), { keepAlive: false });
    return process;
  }

  async #list(options: ParamsOf<"process/list">): Promise<ProcessListing[]> {
    if (!this.#link.server.extended) return [...this.#processes.values()].map((process) => process.listing());
    return (await this.#link.call("process/list", options)).processes;
  }

  // ---- called by the client

  /** @internal */
  notified(notification: ServerNotification): void {
    this.#released.notified(notification);
    switch (notification.method) {
      case "process/output":
        this.#processes
          .get(notification.params.processId)
          ?.follower.offer({ type: "output", ...notification.params });
        return;
      case "process/exited": {
        const { processId, seq, exitCode, signal, reason, limit, sandboxDenied } = notification.params;
        const process = this.#processes.get(processId);
        if (!process) return;
        process.follower.offer({
          type: "exited",
          seq,
          exitCode,
          signal: signal ?? null,
          reason: reason ?? process.follower.guessReason(signal ?? null),
          limit,
          sandboxDenied: sandboxDenied ?? false,
        });
        return;
      }
      case "process/closed":
        this.#processes
          .get(notification.params.processId)
          ?.follower.offer({ type: "closed", seq: notification.params.seq });
        return;
      case "process/started":
        this.#processes.get(notification.params.processId)?.follower.learnPid(notification.params.pid);
        return;
      case "process/resized": {
        const { processId, ...change } = notification.params;
        this.#processes.get(processId)?.resized(change);
        return;
      }
      case "process/gap": {
        const { processId, ...gap } = notification.params;
        this.#processes.get(processId)?.follower.offerGap(gap);
        return;
      }
      case "process/roleChanged": {
        const { processId, role, reason } = notification.params;
        const process = this.#processes.get(processId);
        if (process instanceof AttachedProcess) process.roleChanged(role, reason);
        return;
      }
      case "process/driverChanged": {
        const { processId, driver } = notification.params;
        this.#processes.get(processId)?.onDriverChanged(driver);
        return;
      }
      case "process/failed":
        this.#processes.get(notification.params.processId)?.follower.fail(notification.params.message);
        return;
      default:
        return;
    }
  }

  /** @internal */
  resumed(): void {
    this.#released.resumed();
    for (const process of this.#processes.values()) process.follower.resumed();
  }

  /** @internal */
  failed(error: DisconnectedError): void {
    for (const process of [...this.#processes.values()]) process.follower.fail(error.message);
  }

  // ---- below

  get #link(): Link {
    return this.#deps.link();
  }

  #register(processId: string, params: StartParams | null): RemoteProcess {
    return this.#registered(new RemoteProcess(processId, params, this.#processDeps(processId)));
  }

  #processDeps(processId: string): RemoteProcessDeps {
    const { clock, logLimits } = this.#deps;
    return {
      link: this.#link,
      clock,
      newWriteId: () => `${this.#writerId}-${++this.#writes}`,
      onReleased: () => this.#released.add(processId),
      logLimits,
    };
  }

  /** Events of this id go to it from now on. */
  #registered<P extends RemoteProcess>(process: P): P {
    const { processId } = process;
    this.#link.reuse(processId);
    this.#released.forget(processId);
    this.#processes.set(processId, process);
    const stop = process.log.listen(() => {
      if (!process.log.isClosed && process.log.failure === null) return;
      stop();
      if (this.#processes.get(processId) === process) this.#processes.delete(processId);
    });
    return process;
  }

  /**
   * Starts it exactly once, whatever becomes of the connection. A start that had to be sent again and is answered
   * with "already exists" met its own first copy. If that one is then unknown, it had failed to start, and the next
   * try tells why; unless something was heard of it, since then it has ended and was confirmed meanwhile.
   */
  async #startOnce(
    wire: ParamsOf<"process/start">,
    { follower }: RemoteProcess,
  ): Promise<ResultOf<"process/start">> {
    const { processId } = wire;
    let isRepeated = false;
    for (;;) {
      try {
        const renew = () => {
          isRepeated = true;
          return wire;
        };
        // What is kept is known to the next server too, which refuses it as already there.
        const resend = wire.lifetime === "kept" ? "always" : "sameServer";
        return await this.#link.call("process/start", wire, { renew, resend });
      } catch (error) {
        if (!isRepeated || !isRefusal(error, `process ${processId} already exists`)) throw error;
      }
      if (follower.hasNews || (await this.#isKnown(processId)) || follower.hasNews)
        return { processId, sandboxType: wire.sandboxType ?? "none" };
    }
  }

  async #isKnown(processId: string): Promise<boolean> {
    const { clock } = this.#deps;
    const deadline = clock.monotonic() + STARTING_WITHIN_MS;
    for (;;) {
      try {
        await this.#link.call("process/read", { processId, maxBytes: 0 });
        return true;
      } catch (error) {
        if (isUnknown(error, processId)) return false;
        if (!isRefusal(error, `process id ${processId} is starting`)) throw error;
      }
      if (clock.monotonic() >= deadline)
        throw new TimeoutError(
          `process ${processId} to start, which the server says it still does since the connection was lost; it may have started,`,
          STARTING_WITHIN_MS,
        );
      await sleep(clock, STARTING_POLL_MS);
    }
  }

  /** For servers that know no time limit. */
  #endLater(process: RemoteProcess, timeoutMs: number): void {
    const timer = this.#deps.clock.after(
      timeoutMs,
      // A server that is gone by then has taken the process with it, or has told its failure.
      () => {
        process.follower.endedFor ??= "timeout";
        void process.terminate({ type: "graceful", timeoutMs: TIMEOUT_GRACE_MS }).catch(() => undefined);
      },
      { keepAlive: false },
    );
    const stop = process.log.listen(() => {
      if (process.log.exit === null && process.log.failure === null) return;
      stop();
      timer.cancel();
    });
  }
}

function isRefusal(error: unknown, message: string): boolean {
  return (
    error instanceof RequestError && error.code === ErrorCode.invalidRequest && error.message === message
  );
}

function startParams(params: StartParams): ParamsOf<"process/start"> {
  // The server has a scope of its own: the session.
  const { cwd, arg0, envPolicy, sandboxScope: _, signal: __, ...rest } = params;
  const sandbox = params.sandbox ?? undefined;
  if (sandbox !== undefined && !isObject(sandbox)) throw invalidParams("sandbox must be an object");
  return {
    ...rest,
    cwd: toPathUri(cwd, "cwd"),
    arg0: arg0 ?? undefined,
    envPolicy: envPolicy ?? undefined,
    sandbox,
  };
}
