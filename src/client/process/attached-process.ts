import { Lanes } from "../../async/keyed-queue.ts";
import { asked } from "../../exec/call-error.ts";
import type { CallOptions, ProcessListing, TerminalSize } from "../../exec/exec-process.ts";
import type { attachResult, role } from "../../protocol/attach-schemas.ts";
import { DisconnectedError, RequestError } from "../../protocol/errors.ts";
import type { Infer } from "../../protocol/schema.ts";
import type { Link } from "../session/reconnecting-session.ts";
import { RemoteProcess, type RemoteProcessDeps } from "./remote-process.ts";

/** A viewer only reads; a driver also writes, resizes, signals and ends. */
export type Role = Infer<typeof role>;

export interface AttachOptions extends CallOptions {
  /** Default: viewer. */
  role?: Role | undefined;
  /** What the process is called in this client's session; default: its handle. */
  processId?: string | undefined;
  /** A driver's terminal, which becomes the process's. */
  size?: TerminalSize | undefined;
}

/**
 * A process of another session, attached to by its handle. It has every call of a process that the role allows;
 * disposing of it ends the attachment and not the process.
 */
export class AttachedProcess extends RemoteProcess {
  /** Called when another client has changed the role of this one. */
  onRoleChanged: (role: Role, reason: string) => void = () => undefined;
  readonly #attachedTo: string;
  readonly #link: Link;
  readonly #calls = new Lanes<"role">();
  #role: Role = "viewer";
  /** How often another client has changed the role of this one. */
  #changes = 0;
  #facts: Infer<typeof attachResult> | null = null;

  /** @internal */
  constructor(handle: string, processId: string, deps: RemoteProcessDeps) {
    super(processId, null, { ...deps, isViewer: () => this.#role === "viewer" });
    this.#attachedTo = handle;
    this.#link = deps.link;
  }

  override get handle(): string {
    return this.#attachedTo;
  }

  get role(): Role {
    return this.#role;
  }

  /** Of its terminal, as far as the server has told; null where it has none. */
  get size(): TerminalSize | null {
    return this.sizes.last ?? this.#facts?.size ?? null;
  }

  /** The size that its terminal had when it wrote the output of this seq. */
  sizeAt(seq: number): TerminalSize | null {
    return this.sizes.at(seq) ?? this.size;
  }

  /** Events before this seq are older than the attachment. */
  get nextSeq(): number {
    return this.#facts?.nextSeq ?? 1;
  }

  /** Becomes the driver; the former driver becomes a viewer. */
  takeDriver(size?: TerminalSize): Promise<void> {
    return asked({ method: "process/attach" }, () => this.attachAs("driver", size));
  }

  /** Becomes a viewer. */
  release(): Promise<void> {
    return asked({ method: "process/attach" }, () => this.attachAs("viewer"));
  }

  /** Ends the attachment; the process goes on. */
  override async detach(): Promise<void> {
    try {
      if (!this.follower.isOver) await this.#link.call("process/detach", { processId: this.processId });
    } catch (error) {
      // Known no more: a first copy of this call has arrived, or the process has ended and was forgotten.
      const isGone = error instanceof RequestError || error instanceof DisconnectedError;
      if (!isGone) throw error;
    }
    this.log.fail(`this client has detached from process ${this.processId}`);
  }

  override listing(): ProcessListing {
    const { argv = [], cwd = "", tty = false, startedAtMs = 0 } = this.#facts ?? {};
    return { ...super.listing(), argv, cwd, tty, startedAtMs, handle: this.handle };
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.detach();
    this.log.dispose();
  }

  // ---- what the backend tells it

  /**
   * Attaches, or changes the role. One after another, so that the last call decides.
   *
   * @internal
   */
  attachAs(role: Role, size?: TerminalSize): Promise<void> {
    return this.#calls.run("role", async () => {
      const { handle, processId } = this;
      for (;;) {
        const [before, changes] = [this.#role, this.#changes];
        const facts = await this.#link.call("process/attach", { handle, processId, role, size });
        this.#facts = facts;
        if (changes === this.#changes) {
          this.#setRole(facts.role);
          return;
        }
        // The role was taken over meanwhile. For a viewer that became driver, that was after the answer; otherwise the
        // order is unknown, so ask again.
        if (role === "viewer" || before === "viewer") return;
      }
    });
  }

  /** @internal */
  roleChanged(role: Role, reason: string): void {
    this.#changes++;
    this.#setRole(role);
    this.onRoleChanged(role, reason);
  }

  #setRole(role: Role): void {
    if (this.#role === role) return;
    this.#role = role;
    this.follower.roleChanged();
  }
}
