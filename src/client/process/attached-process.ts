import { KeyedQueue } from "../../async/keyed-queue.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions, ProcessListing, TerminalScreen, TerminalSize } from "../../exec/exec-process.ts";
import { DEFAULT_TERMINAL_SIZE } from "../../exec/exec-process.ts";
import { checkArgument, count } from "../../exec/options/option-schema.ts";
import { checkCall } from "../../exec/options/process-checks.ts";
import { terminalSizeKind } from "../../exec/options/process-options.ts";
import type { attachResult, role } from "../../protocol/attach-schemas.ts";
import { DisconnectedError, RequestError } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { Infer } from "../../protocol/schema.ts";
import { callOrExplain } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";
import { RemoteProcess, type RemoteProcessDeps } from "./remote-process.ts";

/** A viewer only reads; a driver also writes, resizes, signals and terminates. */
export type AttachRole = Infer<typeof role>;

export interface AttachOptions extends CallOptions {
  /** Default: viewer. */
  role?: AttachRole | undefined;
  /** Process id in this client's session. Default: the handle. */
  processId?: string | undefined;
  /** Terminal size of the driver, which becomes the size of the process's terminal. */
  size?: TerminalSize | undefined;
  /**
   * Requests the rendered screen: `process.screen` has it, and the event log starts after it. Read earlier output with
   * `process.read`. Default: false.
   */
  screen?: boolean | undefined;
}

/**
 * A process of another session, attached by its handle. It supports the calls that the role allows. Disposal ends the
 * attachment, not the process.
 */
export class AttachedProcess extends RemoteProcess {
  /** Called when another client changed this client's role. */
  onRoleChanged: (role: AttachRole, reason: string) => void = () => undefined;
  readonly #attachedTo: string;
  readonly #session: ReconnectingSession;
  readonly #calls = new KeyedQueue<"role">();
  #role: AttachRole = "viewer";
  /** How often another client changed this client's role. */
  #changes = 0;
  #info: Infer<typeof attachResult> | null = null;
  #driver: "attached" | "none" = "none";
  #detaching: Promise<void> | null = null;

  /** @internal */
  constructor(handle: string, processId: string, deps: RemoteProcessDeps) {
    super(processId, null, { ...deps, isViewer: () => this.#role === "viewer" });
    this.#attachedTo = handle;
    this.#session = deps.session;
  }

  override get handle(): string {
    return this.#attachedTo;
  }

  get role(): AttachRole {
    return this.#role;
  }

  /** Terminal size as last reported by the server; null without a terminal. */
  get size(): TerminalSize | null {
    return this.sizes.last ?? this.#info?.size ?? null;
  }

  /** Returns the terminal size for output with this sequence number. */
  sizeAt(seq: number): TerminalSize | null {
    checkArgument("sizeAt", "seq", seq, count);
    return this.sizes.at(seq) ?? this.size;
  }

  /**
   * Rendered screen at the time of the attachment. Null if not requested, without a terminal, if the terminal is too
   * large, and if the server does not support it; `events()` then starts with the retained output.
   */
  get screen(): TerminalScreen | null {
    return this.#info?.screen ?? null;
  }

  /** `attached` if another session drives the process: its driver, or its owner while it is connected. */
  get driver(): "attached" | "none" {
    return this.#driver;
  }

  /** Returns the current screen, for example after a gap. Continue with the events after its `seq`. */
  renderScreen(options: CallOptions = {}): Promise<TerminalScreen> {
    const { processId } = this;
    const render = () => callOrExplain(this.#session, "process/screen", { processId });
    const check = () => checkCall("renderScreen", options);
    return withCallErrors({ method: "process/screen" }, render, options?.signal, check);
  }

  /** First sequence number after the attachment. */
  get nextSeq(): number {
    return this.#info?.nextSeq ?? 1;
  }

  /** Becomes the driver; the current driver becomes a viewer. */
  becomeDriver(size?: TerminalSize): Promise<void> {
    const check = () => checkArgument("becomeDriver", "size", size ?? DEFAULT_TERMINAL_SIZE, terminalSizeKind);
    return withCallErrors({ method: "process/attach" }, () => this.attachAs("driver", { size }), undefined, check);
  }

  /** Becomes a viewer. */
  becomeViewer(): Promise<void> {
    return withCallErrors({ method: "process/attach" }, () => this.attachAs("viewer"));
  }

  /** Ends the attachment; the process continues to run. */
  override detach(): Promise<void> {
    this.#detaching ??= this.#detach().finally(() => {
      this.#detaching = null;
    });
    return this.#detaching;
  }

  async #detach(): Promise<void> {
    try {
      if (!this.follower.isClosed) await this.#session.call("process/detach", { processId: this.processId });
    } catch (error) {
      // The first copy of this call arrived, the server forgot the closed process, or the session is lost.
      const isDetached = error instanceof RequestError || error instanceof DisconnectedError;
      if (!isDetached) throw error;
    }
    this.log.fail(new ExecServerError(`detached from process ${this.processId}`, "FAILED"));
  }

  override listing(): ProcessListing {
    const { argv = [], cwd = "", tty = false, startedAtMs = 0, name, labels } = this.#info ?? {};
    return { ...super.listing(), argv, cwd, tty, startedAtMs, handle: this.handle, name, labels };
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.detach();
    this.log.dispose();
  }

  // ---- called by the backend

  /**
   * Attaches, or changes the role. Calls run one after another, so that the last call decides. With `screen`, skips the
   * events before the rendered screen.
   *
   * @internal
   */
  attachAs(
    role: AttachRole,
    {
      size,
      screen,
      isMovable = false,
    }: { size?: TerminalSize | undefined; screen?: boolean | undefined; isMovable?: boolean } = {},
  ): Promise<void> {
    return this.#calls.run("role", async () => {
      const { handle, processId } = this;
      for (;;) {
        const [previousRole, changes] = [this.#role, this.#changes];
        const params = { handle, processId, role, size, screen };
        const info = await this.#session.call("process/attach", params, { isMovable });
        this.#info = { ...info, screen: info.screen ?? this.#info?.screen };
        this.#driver = info.driver ?? "none";
        if (info.screen) this.follower.onGap({ fromSeq: 1, toSeq: info.screen.seq, bytes: null });
        if (changes === this.#changes) {
          this.#setRole(info.role);
          return;
        }
        // Another client changed the role meanwhile. If this client was a viewer and became driver, the change came
        // after the result; otherwise the order is unknown, so call again.
        if (role === "viewer" || previousRole === "viewer") return;
      }
    });
  }

  /** The detachment in progress, or null. It would end a new attachment under the same id. @internal */
  get detaching(): Promise<void> | null {
    return this.#detaching;
  }

  /** @internal */
  roleChanged({ role, reason }: { role: AttachRole; reason: string }): void {
    this.#changes++;
    // Another session has become the driver.
    if (role === "viewer") this.#driver = "attached";
    this.#setRole(role);
    this.onRoleChanged(role, reason);
  }

  /** @internal */
  override driverChanged(driver: "attached" | "none"): void {
    this.#driver = driver;
    super.driverChanged(driver);
  }

  #setRole(role: AttachRole): void {
    if (this.#role === role) return;
    this.#role = role;
    this.follower.onRoleChanged();
  }
}
