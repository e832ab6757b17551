/**
 * Files behind walls: a request with a sandbox intent is carried out by a second server of our own that runs inside the
 * walls the intent asks for. Whatever it may not touch, the kernel refuses; nothing here checks a path.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Clock, systemClock, type Timer } from "./async/clock.ts";
import type { Caller } from "./client/caller.ts";
import { shakeHands } from "./client/handshake.ts";
import { RpcCaller } from "./client/rpc-caller.ts";
import { LineConnection } from "./connection/line-connection.ts";
import { resolveSandbox } from "./sandbox/resolve-sandbox.ts";
import { cannotEnforce } from "./sandbox/sandbox-intent.ts";
import type { WalledFileServers, WalledFiles } from "./server/host-services.ts";

/** An inner server that is not asked for this long is ended; a patch asks a dozen times within a second. */
const IDLE_MS = 10_000;
/** A healthy inner server answers within 200 ms. */
const START_WITHIN_MS = 10_000;

export interface BubblewrappedFilesOptions {
  clock?: Clock;
  /** An inner server has ended; bubblewrap leaves one behind that nobody waits for. */
  onEnded?: () => void;
}

/** One inner server per intent, kept while it is used. */
export class BubblewrappedFiles implements WalledFileServers {
  readonly #clock: Clock;
  readonly #onEnded: () => void;
  readonly #servers = new Map<string, InnerServer>();

  constructor(options: BubblewrappedFilesOptions = {}) {
    this.#clock = options.clock ?? systemClock;
    this.#onEnded = options.onEnded ?? (() => undefined);
  }

  async behind(intent: unknown): Promise<WalledFiles> {
    const key = JSON.stringify(intent);
    let server = this.#servers.get(key);
    if (!server) {
      server = new InnerServer(intent, this.#clock, {
        onGone: () => this.#servers.delete(key),
        onEnded: this.#onEnded,
      });
      this.#servers.set(key, server);
    }
    const caller = await server.caller();
    return { call: (method, params) => caller.call(method, params) };
  }

  close(): void {
    for (const server of this.#servers.values()) void server.end();
    this.#servers.clear();
  }
}

class InnerServer {
  readonly #clock: Clock;
  readonly #onGone: () => void;
  readonly #onEnded: () => void;
  readonly #started: Promise<{ caller: Caller; child: ChildProcess }>;
  #idle: Timer | null = null;

  constructor(intent: unknown, clock: Clock, events: { onGone: () => void; onEnded: () => void }) {
    this.#clock = clock;
    this.#onGone = events.onGone;
    this.#onEnded = events.onEnded;
    this.#started = this.#start(intent);
  }

  async caller(): Promise<Caller> {
    const { caller } = await this.#started;
    this.#idle?.cancel();
    this.#idle = this.#clock.after(IDLE_MS, () => void this.end(), { keepAlive: false });
    return caller;
  }

  async end(): Promise<void> {
    this.#idle?.cancel();
    this.#onGone();
    // One that never started has nothing to end.
    const started = await this.#started.catch(() => null);
    started?.caller.close();
    started?.child.kill();
  }

  async #start(intent: unknown): Promise<{ caller: Caller; child: ChildProcess }> {
    try {
      const env = { PATH: process.env.PATH ?? "/usr/bin:/bin" };
      const argv = [process.execPath, ownProgram(), "serve", "--listen", "stdio://"];
      const { argv: walled } = await resolveSandbox(intent, { argv, cwd: "/", env });
      const [file = "", ...args] = walled;
      const child = spawn(file, args, { stdio: ["pipe", "pipe", "ignore"], env });
      child.unref();
      child.once("exit", this.#onEnded);
      const failed = new Promise<never>((_, reject) => child.once("error", reject));
      const connection = new LineConnection(child.stdout, child.stdin, { label: "the server behind walls" });
      const caller = new RpcCaller(connection, { notified: () => undefined, closed: () => this.#onGone() });
      const shaken = shakeHands(caller, {
        clientName: "procwire",
        timeoutMs: START_WITHIN_MS,
        clock: this.#clock,
        resumeSessionId: null,
        takeOver: false,
      });
      shaken.catch(() => child.kill());
      await Promise.race([shaken, failed]);
      return { caller, child };
    } catch (cause) {
      this.#onGone();
      throw cannotEnforce({ cause });
    }
  }
}

/** This program's own entry, wherever it runs from: the bundle, the built library, or the sources. */
function ownProgram(): string {
  const found = ["./procwire.cjs", "./cli/procwire.js", "./cli/procwire.ts"]
    .map((path) => fileURLToPath(new URL(path, import.meta.url)))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error("procwire cannot find its own program");
  return found;
}
