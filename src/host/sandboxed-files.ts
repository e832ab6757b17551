/**
 * Files behind walls: a request with a sandbox intent is carried out by a second server of our own that runs inside the
 * walls the intent asks for. Whatever it may not touch, the kernel refuses; nothing here checks a path.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock, type Timer } from "../async/clock.ts";
import type { Caller } from "../client/caller.ts";
import { shakeHands } from "../client/rpc/handshake.ts";
import { RpcCaller } from "../client/rpc/json-rpc-channel.ts";
import { LineConnection } from "../connection/line-connection.ts";
import type { ResolvedWalls } from "../exec/resolved-sandbox.ts";
import { invalidRequest, RequestError } from "../protocol/errors.ts";
import type { HiddenFiles } from "../sandbox/masked-paths.ts";
import { resolveSandbox } from "../sandbox/resolve-sandbox.ts";
import { cannotEnforce } from "../sandbox/sandbox-request.ts";
import type { WalledFileServers, WalledFiles } from "../server/host-services.ts";
import type { Cap } from "../server/server-config.ts";

/** An inner server without a request for this long is ended; applying a patch makes a dozen requests within a second. */
const IDLE_MS = 10_000;
/** A healthy inner server answers within 200 ms. */
const START_WITHIN_MS = 10_000;

export interface BubblewrappedFilesOptions {
  /** Files of the host that must not be reachable from inside. */
  hidden: HiddenFiles;
  /** How many inner servers there may be, of one scope and in all. */
  cap: Cap;
  clock?: Clock;
  /** Called when an inner server has ended: bubblewrap leaves a zombie that has to be reaped. */
  onEnded?: () => void;
}

interface InnerRequest {
  intent: unknown;
  /** The session: its roots stay resolved as at their first use. */
  scope: object;
  hidden: HiddenFiles;
}

/** One inner server per scope and intent, kept while it is used and while no other needs its place. */
export class BubblewrappedFiles implements WalledFileServers {
  readonly #hidden: HiddenFiles;
  readonly #cap: Cap;
  readonly #clock: Clock;
  readonly #onEnded: () => void;
  /** By scope and by intent; those last asked for are at the end. */
  readonly #servers = new Map<object, Map<string, InnerServer>>();
  #isClosed = false;

  constructor(options: BubblewrappedFilesOptions) {
    this.#hidden = options.hidden;
    this.#cap = options.cap;
    this.#clock = options.clock ?? systemClock;
    this.#onEnded = options.onEnded ?? (() => undefined);
  }

  async behind(intent: unknown, scope: object): Promise<WalledFiles> {
    // A request may outlive its connection, and what is started for it now would be ended by nobody.
    if (this.#isClosed) throw invalidRequest("server is shutting down");
    const key = JSON.stringify(intent);
    const server = this.#servers.get(scope)?.get(key) ?? this.#add(key, intent, scope);
    await server.started();
    return {
      call: async (method, params) => {
        // Its place was given to another before it was used.
        if (server.hasEnded) return (await this.behind(intent, scope)).call(method, params);
        return server.call((caller) => caller.call(method, params));
      },
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#all().map((server) => server.end()));
  }

  #add(key: string, intent: unknown, scope: object): InnerServer {
    this.#makePlace("this session", [...(this.#servers.get(scope)?.values() ?? [])], this.#cap.each);
    this.#makePlace("this server", this.#all(), this.#cap.all);
    const ofScope = this.#servers.get(scope) ?? new Map<string, InnerServer>();
    this.#servers.set(scope, ofScope);
    const server: InnerServer = new InnerServer({ intent, scope, hidden: this.#hidden }, this.#clock, {
      onGone: () => {
        if (ofScope.get(key) === server) ofScope.delete(key);
        if (ofScope.size === 0 && this.#servers.get(scope) === ofScope) this.#servers.delete(scope);
      },
      onEnded: this.#onEnded,
    });
    ofScope.set(key, server);
    return server;
  }

  /** Ends the one that has been idle for longest when there is no place for one more, or refuses when all are busy. */
  #makePlace(owner: string, servers: InnerServer[], most: number): void {
    if (servers.length < most) return;
    const idle = servers
      .filter((server) => !server.isBusy)
      .reduce<InnerServer | null>((a, b) => (a && a.lastUse <= b.lastUse ? a : b), null);
    if (!idle) {
      throw invalidRequest(
        `too many sandboxes with file requests under way: ${owner} may have ${most} at once; await the answer to one of them first`,
      );
    }
    void idle.end();
  }

  #all(): InnerServer[] {
    return [...this.#servers.values()].flatMap((ofScope) => [...ofScope.values()]);
  }
}

interface StartedServer {
  caller: Caller;
  child: ChildProcess;
  /** Resolves when the inner server has ended and its sandbox is removed. */
  takenDown: Promise<void>;
}

class InnerServer {
  readonly #clock: Clock;
  readonly #onGone: () => void;
  readonly #onEnded: () => void;
  readonly #started: Promise<StartedServer>;
  #idle: Timer | null = null;
  #callsUnderWay = 0;
  #isStarting = true;
  #lastUse: number;
  #hasEnded = false;

  constructor(request: InnerRequest, clock: Clock, events: { onGone: () => void; onEnded: () => void }) {
    this.#clock = clock;
    this.#onGone = events.onGone;
    this.#onEnded = events.onEnded;
    this.#lastUse = clock.monotonic();
    this.#started = this.#start(request).finally(() => {
      this.#isStarting = false;
    });
  }

  /** It is being started for somebody, or carries out a request. */
  get isBusy(): boolean {
    return this.#isStarting || this.#callsUnderWay > 0;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get lastUse(): number {
    return this.#lastUse;
  }

  async started(): Promise<void> {
    await this.#started;
    this.#used();
  }

  async call<T>(carryOut: (caller: Caller) => Promise<T>): Promise<T> {
    this.#callsUnderWay++;
    try {
      return await carryOut((await this.#started).caller);
    } finally {
      this.#callsUnderWay--;
      this.#used();
    }
  }

  #used(): void {
    if (this.#hasEnded) return;
    this.#lastUse = this.#clock.monotonic();
    this.#idle?.cancel();
    this.#idle = this.#clock.after(IDLE_MS, () => this.#endWhenIdle(), { keepAlive: false });
  }

  #endWhenIdle(): void {
    if (!this.isBusy) void this.end();
  }

  async end(): Promise<void> {
    this.#hasEnded = true;
    this.#idle?.cancel();
    this.#onGone();
    // A server that never started has nothing to end.
    const started = await this.#started.catch(() => null);
    started?.caller.close();
    // Whoever waits for this end may have nothing else left that keeps the program.
    started?.child.ref();
    started?.child.kill("SIGKILL");
    await started?.takenDown;
  }

  async #start({ intent, scope, hidden }: InnerRequest): Promise<StartedServer> {
    try {
      const env = { PATH: process.env.PATH ?? "/usr/bin:/bin" };
      // No watchdog and no warning about a missing one: bubblewrap ends the inner server with this program.
      const argv = [process.execPath, ownProgram(), "serve", "--listen", "stdio://", "--log-level", "error"];
      const start = { argv, cwd: null, env, sandboxScope: scope };
      // The inner server is our own program, so its connections are not refused as a sandboxed peer's.
      const onNetworked = () => () => undefined;
      const resolved = await resolveSandbox(intent, start, { hidden, onNetworked });
      // Requests without a sandbox intent never come here.
      if (resolved.type === "none") throw cannotEnforce();
      const { child, stdin, stdout, takenDown } = startWalled(resolved);
      child.once("exit", this.#onEnded);
      const failed = new Promise<never>((_, reject) => child.once("error", reject));
      const connection = new LineConnection(stdout, stdin, { label: "the server behind walls" });
      const caller = new RpcCaller(connection, { notified: () => undefined, closed: () => this.#onGone() });
      const shaken = shakeHands(caller, {
        clientName: "procwire",
        timeoutMs: START_WITHIN_MS,
        clock: this.#clock,
        resumeSessionId: null,
        takeOver: false,
        takeOverFrom: null,
      });
      shaken.catch(() => child.kill("SIGKILL"));
      await Promise.race([shaken, failed]);
      return { caller, child, takenDown };
    } catch (cause) {
      this.#onGone();
      throw cause instanceof RequestError ? cause : cannotEnforce({ cause });
    }
  }
}

function startWalled(walls: ResolvedWalls) {
  const { file, argv, env, descriptors } = walls.child;
  const child = spawn(file, argv.slice(1), { stdio: ["pipe", "pipe", "ignore", ...descriptors], env });
  child.unref();
  // The child has its own copies of the descriptors by now.
  walls.started(child.pid ?? null);
  const takenDown = new Promise<void>((resolve) => {
    child.once("close", () => void walls.ended().then(resolve, resolve));
  });
  const { stdin, stdout } = child;
  if (!stdin || !stdout) throw new Error("the server behind walls has no pipes");
  return { child, stdin, stdout, takenDown };
}

/** This program's own entry, wherever it runs from: the bundle, the built library, or the sources. */
function ownProgram(): string {
  const found = ["./procwire.cjs", "../cli/procwire.js", "../cli/procwire.ts"]
    .map((path) => join(import.meta.dirname, path))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("procwire cannot find its own program");
  return found;
}
