import type { Lifetime, ProcessListing, StartParams } from "../../exec/exec-process.ts";
import type { HostProcess } from "../../exec/host-backend.ts";
import type { role } from "../../protocol/attach-schemas.ts";
import type { Infer } from "../../protocol/schema.ts";
import { QueryClaims } from "../query-claims.ts";
import { type InputActor, InputTimeline, type TypedInput } from "./input-history.ts";
import type { ProcessHandles } from "./process-handles.ts";

export type Role = Infer<typeof role>;

/** A session that has attached to a process as its driver. */
export interface Driver {
  /** Another session has taken over: it goes on as a viewer. */
  takenOver(): void;
}

/** The session that started a process, while it has it. */
export interface Owner {
  driverChanged(driver: "attached" | "none"): void;
  /** Another session has it too from now on. */
  isShared(): void;
}

export interface SharedProcessOptions {
  handles: ProcessHandles<SharedProcess>;
  /** The principal whose process it is. */
  ownerId: string;
  lifetime: Lifetime;
  /** Who answers what it asks its terminal, as its owner wishes. */
  terminalQueries?: StartParams["terminalQueries"];
  /** What is typed is kept, as far as its terminal shows it. */
  recordsInput?: boolean;
  /** Of one that outlives the server, whose name was made before it. */
  handle?: string | undefined;
}

/**
 * A process as the server knows it, apart from the sessions that see it: the one that started it, those that have attached
 * to it. Its output is given back when the last of them has let go of it.
 */
export class SharedProcess {
  readonly process: HostProcess;
  readonly ownerId: string;
  readonly lifetime: Lifetime;
  /** Of one whose owner's client claims what it answers. */
  readonly claims: QueryClaims | null;
  readonly #inputs = new InputTimeline();
  readonly #recordsInput: boolean;
  readonly #handles: ProcessHandles<SharedProcess>;
  readonly #terminalQueries: StartParams["terminalQueries"];
  readonly #keepers = new Set<object>();
  #handle: string | null = null;
  #owner: Owner | null = null;
  #driver: Driver | null = null;

  constructor(
    process: HostProcess,
    { handles, ownerId, lifetime, handle, terminalQueries, recordsInput = false }: SharedProcessOptions,
  ) {
    this.process = process;
    if (handle !== undefined) {
      handles.put(handle, this);
      this.#handle = handle;
    }
    this.#handles = handles;
    this.ownerId = ownerId;
    this.lifetime = lifetime;
    this.#terminalQueries = terminalQueries;
    this.claims = terminalQueries === "claimed" ? new QueryClaims(process) : null;
    this.#recordsInput = recordsInput;
  }

  /** Its public name, made for the first who asks: most processes are over before anybody does. */
  get handle(): string {
    this.#handle ??= this.#handles.take(this);
    return this.#handle;
  }

  /** It goes on when its session is over. */
  get outlivesSession(): boolean {
    return this.lifetime !== "session";
  }

  /** Everything it will ever tell is in its log. */
  get isOver(): boolean {
    const { log } = this.process;
    return log.isClosed || log.failure !== null;
  }

  get driver(): "attached" | "none" {
    return this.#driver ? "attached" : "none";
  }

  listing(): ProcessListing {
    return { ...this.process.listing(), handle: this.handle, lifetime: this.lifetime };
  }

  /** Somebody has given it input. */
  typed(actor: InputActor, { chunk, ...input }: Omit<TypedInput, "atMs">): void {
    const atMs = Math.round(this.process.log.ageMs);
    this.#inputs.add(actor, { ...input, atMs, chunk: this.#recordsInput ? chunk : null });
  }

  inputs(): ReturnType<InputTimeline["told"]> {
    return this.#inputs.told();
  }

  own(owner: Owner): void {
    this.#owner = owner;
    this.keep(owner);
  }

  /** It stays until this one has let go of it too. */
  keep(keeper: object): void {
    this.#keepers.add(keeper);
    if (keeper !== this.#owner) this.#owner?.isShared();
  }

  letGo(keeper: object): void {
    if (!this.#keepers.delete(keeper)) return;
    if (this.#owner === keeper) {
      this.#owner = null;
      this.claims?.left();
    }
    if (this.#driver === keeper) this.#setDriver(null);
    if (this.#keepers.size > 0) return;
    if (this.#handle !== null) this.#handles.release(this.#handle);
    this.process.log.dispose();
    this.process.kept?.forget();
  }

  /** There is one driver: who drove before becomes a viewer. */
  drive(driver: Driver): void {
    const former = this.#driver;
    if (former === driver) return;
    this.#setDriver(driver);
    former?.takenOver();
  }

  stopDriving(driver: Driver): void {
    if (this.#driver === driver) this.#setDriver(null);
  }

  #setDriver(driver: Driver | null): void {
    this.#driver = driver;
    // Who attaches never answers: its terminal may be shown old output, or come and go.
    if (this.#terminalQueries === undefined) this.process.answerQueries(driver !== null);
    // `closed` is the last word of a process.
    if (!this.isOver) this.#owner?.driverChanged(this.driver);
  }
}
