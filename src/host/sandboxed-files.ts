/**
 * Sandboxed file access. A request with a sandbox is executed by an inner procwire server that runs in that sandbox. The
 * kernel denies every other access; this code checks no paths.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Clock, systemClock, type Timer } from "../async/clock.ts";
import { performHandshake } from "../client/rpc/handshake.ts";
import { JsonRpcChannel } from "../client/rpc/json-rpc-channel.ts";
import type { RpcChannel } from "../client/rpc/rpc-channel.ts";
import { LineConnection } from "../connection/line-connection.ts";
import type { SandboxedStart } from "../exec/backend/resolved-sandbox.ts";
import { packageRoot } from "../native/native-files.ts";
import { invalidRequest, RequestError } from "../protocol/errors.ts";
import type { MaskedPaths } from "../sandbox/masked-paths.ts";
import { resolveSandbox } from "../sandbox/resolve-sandbox.ts";
import { pathEntry, unenforceableSandbox } from "../sandbox/sandbox-request.ts";
import type { SandboxedFileServers, SandboxedFileSystem } from "../server/host-services.ts";
import type { Cap } from "../server/server-config.ts";
import { landlockSupportIfAvailable } from "./native-support.ts";

/** Idle time after which an inner server ends; applying a patch makes a dozen requests within a second. */
const IDLE_MS = 10_000;
/** An inner server starts within 200 ms; several that start together on a busy host took more than 10 s. */
const START_TIMEOUT_MS = 60_000;

export interface SandboxedFilesOptions {
  /** Host files that the sandbox masks. */
  maskedPaths: MaskedPaths;
  /** Maximum number of inner servers, per scope and in total. */
  cap: Cap;
  /** Returns the maximum of one principal while others hold `others` inner servers. Default: the total. */
  maxPerPrincipal?: ((others: number) => number) | undefined;
  clock?: Clock;
  /** Called when an inner server has exited: bubblewrap leaves a zombie that must be reaped. */
  onEnded?: () => void;
}

interface InnerRequest {
  request: unknown;
  /** The session. Its roots stay resolved as at their first use. */
  scope: object;
  maskedPaths: MaskedPaths;
}

/** Runs one inner server per scope and request until it is idle or its slot is needed. */
export class SandboxedFiles implements SandboxedFileServers {
  readonly #maskedPaths: MaskedPaths;
  readonly #cap: Cap;
  readonly #maxPerPrincipal: (others: number) => number;
  readonly #clock: Clock;
  readonly #onEnded: () => void;
  /** By scope and request. */
  readonly #servers = new Map<object, Map<string, SandboxedFileServer>>();
  #isClosed = false;

  constructor(options: SandboxedFilesOptions) {
    this.#maskedPaths = options.maskedPaths;
    this.#cap = options.cap;
    this.#maxPerPrincipal = options.maxPerPrincipal ?? (() => options.cap.total);
    this.#clock = options.clock ?? systemClock;
    this.#onEnded = options.onEnded ?? (() => undefined);
  }

  async forSandbox(request: unknown, scope: object): Promise<SandboxedFileSystem> {
    // A request may outlive its connection. A server that it starts now would never be ended.
    if (this.#isClosed) throw invalidRequest("server is shutting down");
    const key = JSON.stringify(request);
    const server = this.#servers.get(scope)?.get(key) ?? this.#add(key, request, scope);
    await server.started();
    return {
      call: async (method, params) => {
        // The server was evicted before its first use.
        if (server.hasEnded) return (await this.forSandbox(request, scope)).call(method, params);
        return server.call((caller) => caller.call(method, params));
      },
    };
  }

  forRoots(roots: readonly string[], scope: object): Promise<SandboxedFileSystem> {
    return this.forSandbox(rootsRequest(roots), scope);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#all().map((server) => server.end()));
  }

  #add(key: string, request: unknown, scope: object): SandboxedFileServer {
    this.#evictIdle("this session", [...(this.#servers.get(scope)?.values() ?? [])], this.#cap.perOwner);
    const ownerId = ownerOf(scope);
    const own = this.#all((other) => ownerOf(other) === ownerId);
    this.#evictIdle("this principal", own, this.#maxPerPrincipal(this.#all().length - own.length));
    this.#evictIdle("this server", this.#all(), this.#cap.total);
    const ofScope = this.#servers.get(scope) ?? new Map<string, SandboxedFileServer>();
    this.#servers.set(scope, ofScope);
    const server: SandboxedFileServer = new SandboxedFileServer(
      { request, scope, maskedPaths: this.#maskedPaths },
      this.#clock,
      {
        onGone: () => {
          if (ofScope.get(key) === server) ofScope.delete(key);
          if (ofScope.size === 0 && this.#servers.get(scope) === ofScope) this.#servers.delete(scope);
        },
        onEnded: this.#onEnded,
      },
    );
    ofScope.set(key, server);
    return server;
  }

  /** Ends the least recently used idle server if the limit is reached; throws if all are busy. */
  #evictIdle(owner: string, servers: SandboxedFileServer[], limit: number): void {
    if (servers.length < limit) return;
    const idle = servers
      .filter((server) => !server.isBusy)
      .reduce<SandboxedFileServer | null>((a, b) => (a && a.lastUse <= b.lastUse ? a : b), null);
    if (!idle) {
      throw invalidRequest(
        `too many sandboxes with file requests in flight: ${owner} may have ${limit} at once; await the response to one of them first`,
      );
    }
    void idle.end();
  }

  #all(isIncluded: (scope: object) => boolean = () => true): SandboxedFileServer[] {
    return [...this.#servers].flatMap(([scope, servers]) => (isIncluded(scope) ? [...servers.values()] : []));
  }
}

/** Returns the principal of a session, or undefined if the scope has none. */
const ownerOf = (scope: object): unknown => ("ownerId" in scope ? scope.ownerId : undefined);

interface StartedServer {
  caller: RpcChannel;
  child: ChildProcess;
  /** Resolves when the inner server has ended and its sandbox is removed. */
  cleanedUp: Promise<void>;
}

interface ServerEvents {
  /** Called when the server takes no more requests. */
  onGone: () => void;
  /** Called when the server has exited. */
  onEnded: () => void;
}

class SandboxedFileServer {
  readonly #clock: Clock;
  readonly #events: ServerEvents;
  readonly #started: Promise<StartedServer>;
  #idle: Timer | null = null;
  #callsInFlight = 0;
  #isStarting = true;
  lastUse: number;
  hasEnded = false;

  constructor(request: InnerRequest, clock: Clock, events: ServerEvents) {
    this.#clock = clock;
    this.#events = events;
    this.lastUse = clock.monotonic();
    this.#started = this.#start(request).finally(() => {
      this.#isStarting = false;
    });
  }

  /** True while the server starts or executes a request. */
  get isBusy(): boolean {
    return this.#isStarting || this.#callsInFlight > 0;
  }

  async started(): Promise<void> {
    await this.#started;
    this.#noteUse();
  }

  async call<T>(carryOut: (caller: RpcChannel) => Promise<T>): Promise<T> {
    this.#callsInFlight++;
    try {
      return await carryOut((await this.#started).caller);
    } finally {
      this.#callsInFlight--;
      this.#noteUse();
    }
  }

  #noteUse(): void {
    if (this.hasEnded) return;
    this.lastUse = this.#clock.monotonic();
    this.#idle?.cancel();
    const endIfIdle = () => {
      if (!this.isBusy) void this.end();
    };
    this.#idle = this.#clock.after(IDLE_MS, endIfIdle, { keepAlive: false });
  }

  async end(): Promise<void> {
    this.hasEnded = true;
    this.#idle?.cancel();
    this.#events.onGone();
    // A server that never started needs no cleanup.
    const started = await this.#started.catch(() => null);
    started?.caller.close();
    // Keeps this process alive until the inner server has exited.
    started?.child.ref();
    started?.child.kill("SIGKILL");
    await started?.cleanedUp;
  }

  async #start({ request, scope, maskedPaths }: InnerRequest): Promise<StartedServer> {
    try {
      // HOME, because the sandbox may hide the user database.
      const env = { PATH: process.env.PATH ?? "/usr/bin:/bin", HOME: "/" };
      // Without a watchdog and its warning: bubblewrap kills the inner server when this process exits.
      const args = ["serve", "--listen", "stdio://", "--log-level", "error"];
      const argv = [process.execPath, procwireEntryPath(), ...args];
      const start = { argv, cwd: null, env, sandboxScope: scope };
      // The inner server is trusted, so its connections are not rejected as those of a sandboxed peer.
      const onNetworkAllowed = () => () => undefined;
      const landlock = landlockSupportIfAvailable();
      const host = { maskedPaths, onNetworkAllowed, listenerSupport: null, landlock };
      const resolved = await resolveSandbox(request, start, host);
      // Requests without a sandbox never reach this code.
      if (resolved.type === "none") throw unenforceableSandbox();
      const { child, stdin, stdout, cleanedUp } = startSandboxed(resolved);
      child.once("exit", this.#events.onEnded);
      const failed = new Promise<never>((_, reject) => child.once("error", reject));
      const connection = new LineConnection(stdout, stdin, { label: "the sandboxed file server" });
      const caller = new JsonRpcChannel(connection, {
        onNotification: () => undefined,
        onClosed: () => this.#events.onGone(),
      });
      const handshake = performHandshake(caller, {
        clientName: "procwire",
        timeoutMs: START_TIMEOUT_MS,
        clock: this.#clock,
        resumeSessionId: null,
        takeOver: false,
        takeOverFrom: null,
      });
      handshake.catch(() => child.kill("SIGKILL"));
      await Promise.race([handshake, failed]);
      return { caller, child, cleanedUp };
    } catch (cause) {
      this.#events.onGone();
      throw cause instanceof RequestError ? cause : unenforceableSandbox({ cause });
    }
  }
}

function startSandboxed(sandbox: SandboxedStart) {
  const { file, argv, env, descriptors } = sandbox.child;
  const child = spawn(file, argv.slice(1), { stdio: ["pipe", "pipe", "ignore", ...descriptors], env });
  child.unref();
  // The child has duplicated the descriptors.
  sandbox.started(child.pid ?? null);
  const cleanedUp = new Promise<void>((resolve) => {
    child.once("close", () => void sandbox.ended().then(resolve, resolve));
  });
  const { stdin, stdout } = child;
  if (!stdin || !stdout) throw new Error("start sandboxed file server: it has no pipes");
  return { child, stdin, stdout, cleanedUp };
}

/**
 * Returns a sandbox request with these directories. The inner server also reads program files: system directories without
 * configuration, Node and procwire.
 */
function rootsRequest(roots: readonly string[]): unknown {
  const programs = [process.execPath, packageRoot() ?? dirname(procwireEntryPath())];
  const entries = [
    { path: { type: "special", value: { kind: "minimal" } }, access: "read" },
    ...["/etc", "/opt"].map((path) => pathEntry(path, "deny")),
    ...programs.map((path) => pathEntry(path, "read")),
    ...roots.map((path) => pathEntry(path, "write")),
  ];
  return {
    permissions: { type: "managed", file_system: { type: "restricted", entries }, network: "restricted" },
    windowsSandboxLevel: "disabled",
  };
}

/** Returns the path of the procwire entry file, for the bundle, the sources and the packages. */
function procwireEntryPath(): string {
  const root = packageRoot();
  const paths = ["./procwire.cjs", "../cli/procwire.js", "../cli/procwire.ts"].map((path) =>
    join(import.meta.dirname, path),
  );
  if (root !== null) paths.push(join(root, "dist/bin/procwire.cjs"));
  const found = paths.find((path) => existsSync(path));
  if (found === undefined) throw new Error("find procwire: its entry file is missing; install the package `procwire`");
  return found;
}
