import type { Connection } from "../../src/connection/connection.ts";
import type { Random } from "./random.ts";
import type { SimClock } from "./sim-clock.ts";
import { SimConnection } from "./sim-connection.ts";
import { SimDirection } from "./sim-direction.ts";
import type { Trace } from "./trace.ts";

/** Network conditions of one run. */
export interface WireProfile {
  maxLatencyMs: number;
  windowBytes: number;
  byteWeight: number;
  readsBytes: boolean;
  /** Removes one extension from every `initialize`, like an older client. */
  withoutAcks: boolean;
}

export interface SimWireOptions {
  clock: SimClock;
  random: Random;
  trace: Trace;
  profile: WireProfile;
  accept: (connection: Connection) => void;
}

/** Time after which the system reports an unreachable peer. */
const TCP_TIMEOUT_MS = 120_000;
const CONNECT_TIMEOUT_MS = 10_000;

export type CutKind = "fin" | "reset" | "clientOnly" | "serverOnly" | "silent" | "oneWay";

/** A connection between client and server, with controls for fault injection. */
export class SimPair {
  readonly client: SimConnection;
  readonly server: SimConnection;
  readonly name: string;
  readonly clientName: string;
  readonly #toServer: SimDirection;
  readonly #toClient: SimDirection;
  readonly #clock: SimClock;
  readonly #random: Random;

  constructor(
    name: string,
    clientName: string,
    options: SimWireOptions,
    random: Random,
    onEnd: (pair: SimPair, side: "client" | "server") => void,
  ) {
    const { clock, trace, profile } = options;
    this.name = name;
    this.clientName = clientName;
    this.#clock = clock;
    this.#random = random;
    const createDirection = (arrow: string) =>
      new SimDirection({
        clock,
        random,
        latencyMs: random.int(0, profile.maxLatencyMs),
        windowBytes: profile.windowBytes,
        onText: (text) => trace.add(`${name} ${arrow} ${text.length} ${text.slice(0, 110)}`),
      });
    this.#toServer = createDirection("->");
    this.#toClient = createDirection("<-");
    const end = (side: "client" | "server") => {
      trace.add(`${name} over at the ${side}`);
      onEnd(this, side);
    };
    const { byteWeight, readsBytes } = profile;
    this.client = new SimConnection({
      label: `${name} client`,
      byteWeight,
      readsBytes,
      onEnd: () => end("client"),
    });
    this.server = new SimConnection({
      label: `${name} server`,
      byteWeight,
      readsBytes,
      onEnd: () => end("server"),
    });
    this.#toServer.join(this.client, this.server);
    this.#toClient.join(this.server, this.client);
    this.client.join(this.#toServer, this.#toClient);
    this.server.join(this.#toClient, this.#toServer);
  }

  stall(directions: "both" | "toServer" | "toClient", ms: number): void {
    if (directions !== "toClient") this.#toServer.stall(ms);
    if (directions !== "toServer") this.#toClient.stall(ms);
  }

  cut(kind: CutKind): void {
    switch (kind) {
      case "fin":
        this.#toServer.endInside();
        this.#toClient.endInside();
        return;
      case "reset":
        this.#later(200, () => this.client.ended("connection reset by peer"));
        this.#later(200, () => this.server.ended("connection reset by peer"));
        return;
      case "clientOnly":
        // Messages of the cut connection may still arrive, even after messages of the client's next connection.
        if (this.#random.chance(0.5)) this.#toServer.kill();
        this.client.ended("connection reset by peer");
        this.#toClient.kill();
        this.#timeOutLater(this.server);
        return;
      case "serverOnly":
        // These messages arrive within a second or never, because the session ends before the client notices.
        if (this.#random.chance(0.5)) this.#toClient.kill();
        else this.#later(1000, () => this.#toClient.kill());
        this.server.ended("connection reset by peer");
        this.#toServer.kill();
        this.#timeOutLater(this.client);
        return;
      case "silent":
        this.#toServer.kill();
        this.#toClient.kill();
        this.#timeOutLater(this.client);
        this.#timeOutLater(this.server);
        return;
      case "oneWay": {
        // Without acknowledgements, the other direction ends soon as well.
        const [first, second] = this.#random.chance(0.5)
          ? [this.#toServer, this.#toClient]
          : [this.#toClient, this.#toServer];
        first.kill();
        this.#later(20_000, () => second.kill());
        this.#timeOutLater(this.client);
        this.#timeOutLater(this.server);
        return;
      }
    }
  }

  #timeOutLater(end: SimConnection): void {
    this.#clock.after(TCP_TIMEOUT_MS, () => end.ended("connection timed out"));
  }

  #later(maxMs: number, fn: () => void): void {
    this.#clock.after(this.#random.int(0, maxMs), fn);
  }
}

export type Outage = "none" | "unreachable" | "hangs" | "refused";

/** The network between clients and one server, in memory and in simulated time. */
export class SimWire {
  readonly pairs = new Set<SimPair>();
  /** Fate of a new connection. */
  outage: (clientName: string) => Outage = () => "none";
  /** Reports whether the server's side of the client's newest connection is closed. */
  onServerLost: (clientName: string) => void = () => undefined;
  /** Called after a connection is opened. */
  onPair: (pair: SimPair) => void = () => undefined;
  connections = 0;
  readonly #newest = new Map<string, SimPair>();
  readonly #options: SimWireOptions;

  constructor(options: SimWireOptions) {
    this.#options = options;
  }

  async connect(clientName: string, signal: AbortSignal): Promise<Connection> {
    const { clock, trace, profile, accept } = this.#options;
    const name = `${clientName}#${++this.connections}`;
    const random = this.#options.random.fork();
    await this.#delay(random.int(0, 2 * profile.maxLatencyMs), signal);
    const outage = this.outage(clientName);
    if (outage !== "none") {
      trace.add(`${name} cannot connect: ${outage}`);
      if (outage === "hangs") await this.#delay(CONNECT_TIMEOUT_MS, signal);
      const code = outage === "refused" ? "ECONNREFUSED" : outage === "hangs" ? "ETIMEDOUT" : "EHOSTUNREACH";
      throw Object.assign(new Error(`connect ${code}`), { code });
    }
    const pair = new SimPair(name, clientName, this.#options, random, (over, side) => {
      if (over.client.isOver && over.server.isOver) this.pairs.delete(over);
      if (side === "server" && this.#newest.get(clientName) === over) this.onServerLost(clientName);
    });
    this.pairs.add(pair);
    this.#newest.set(clientName, pair);
    trace.add(`${name} connected`);
    accept(pair.server);
    clock.after(0, () => this.onPair(pair));
    return profile.withoutAcks ? withoutAcks(pair.client) : pair.client;
  }

  #delay(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        timer.cancel();
        reject(signal.reason);
      };
      const timer = this.#options.clock.after(ms, () => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      });
      if (signal.aborted) onAbort();
      else signal.addEventListener("abort", onAbort, { once: true });
    });
  }
}

/** Wraps a connection for a client that does not request acknowledgements. */
function withoutAcks(connection: SimConnection): Connection {
  const send = connection.send.bind(connection);
  connection.send = (text) =>
    send(text.includes('"method":"initialize"') ? text.replace(/"outputAck",?/, "").replace(",]", "]") : text);
  return connection;
}
