import type { Random } from "./random.ts";
import type { SimClock } from "./sim-clock.ts";
import type { Outage, SimPair, SimWire } from "./sim-wire.ts";
import type { Trace } from "./trace.ts";

/**
 * `survivable`: outages are short enough for the documented timeouts, so no process object may fail. `harsh`: outages have
 * any duration, and a process object may fail, but only because of a lost connection.
 */
export type Mode = "survivable" | "harsh";

/** An outage, a hanging connect and a handshake without response together stay below the client's 25 s. */
const PROTECTED_AFTER_MS = 4000;
/** Stays below the session TTL of 30 s, of which the client may need 25 s to notice the loss. */
const SESSION_PROTECTED_AFTER_MS = 1000;

export interface SimFaultsOptions {
  clock: SimClock;
  random: Random;
  trace: Trace;
  wire: SimWire;
  mode: Mode;
  /** Time after which no faults occur. */
  stormMs: number;
  meanBetweenMs: number;
}

/** Breaks connections, by a seed. */
export class SimFaults {
  readonly #options: SimFaultsOptions;
  readonly #stormUntil: number;
  /** Time at which each client started to reconnect. */
  readonly #reconnectingSince = new Map<string, number>();
  /** Time at which the server lost each client's connection. */
  readonly #detachedSince = new Map<string, number>();
  #outage: Outage = "none";
  #outageUntil = 0;
  count = 0;

  constructor(options: SimFaultsOptions) {
    this.#options = options;
    const { clock, wire, stormMs } = options;
    this.#stormUntil = clock.now + stormMs;
    wire.outage = (clientName) => this.#outageFor(clientName);
    wire.onPair = (pair) => this.#scheduleFirstFault(pair);
    wire.onServerLost = (clientName) => {
      if (!this.#detachedSince.has(clientName)) this.#detachedSince.set(clientName, clock.now);
    };
    this.#next();
  }

  looking(clientName: string): void {
    const { clock } = this.#options;
    if (!this.#reconnectingSince.has(clientName)) this.#reconnectingSince.set(clientName, clock.now);
  }

  connected(clientName: string): void {
    this.#reconnectingSince.delete(clientName);
    this.#detachedSince.delete(clientName);
  }

  #isProtected(clientName: string): boolean {
    const { clock, mode } = this.#options;
    if (mode === "harsh") return false;
    const reconnectingMs = clock.now - (this.#reconnectingSince.get(clientName) ?? clock.now);
    const detachedMs = clock.now - (this.#detachedSince.get(clientName) ?? clock.now);
    return reconnectingMs > PROTECTED_AFTER_MS || detachedMs > SESSION_PROTECTED_AFTER_MS;
  }

  #outageFor(clientName: string): Outage {
    if (this.#options.clock.now >= this.#outageUntil || this.#isProtected(clientName)) return "none";
    return this.#outage;
  }

  #next(): void {
    const { clock, random, meanBetweenMs } = this.#options;
    const waitMs = Math.floor(-Math.log(1 - random.next()) * meanBetweenMs);
    if (clock.now + waitMs > this.#stormUntil) return;
    clock.after(waitMs, () => {
      this.#breakRandomPair();
      this.#next();
    });
  }

  #breakRandomPair(): void {
    const { clock, random, trace, wire, mode } = this.#options;
    if (random.chance(0.15)) {
      this.#outage = random.pick(["unreachable", "hangs", mode === "harsh" ? "refused" : "unreachable"]);
      this.#outageUntil = clock.now + random.scaled(100, mode === "harsh" ? 60_000 : 20_000);
      this.count++;
      trace.add(`network ${this.#outage} for ${this.#outageUntil - clock.now} ms`);
      return;
    }
    const pairs = [...wire.pairs].filter(({ clientName }) => !this.#isProtected(clientName));
    const pair = pairs[random.int(0, pairs.length - 1)];
    if (pair) this.#breakPair(pair);
  }

  /** Breaks some connections during the handshake. */
  #scheduleFirstFault(pair: SimPair): void {
    const { clock, random } = this.#options;
    if (clock.now > this.#stormUntil || !random.chance(0.2)) return;
    clock.after(random.int(0, 400), () => {
      if (!this.#isProtected(pair.clientName)) this.#breakPair(pair);
    });
  }

  #breakPair(pair: SimPair): void {
    const { random, trace } = this.#options;
    this.count++;
    if (random.chance(0.3)) {
      const directions = random.pick(["both", "toServer", "toClient"]);
      const ms = random.scaled(10, 40_000);
      trace.add(`${pair.name} stalls (${directions}) for ${ms} ms`);
      pair.stall(directions, ms);
      return;
    }
    const kind = random.pick(["fin", "reset", "clientOnly", "serverOnly", "silent", "oneWay"]);
    trace.add(`${pair.name} is cut (${kind})`);
    pair.cut(kind);
  }
}
