/**
 * The composition of a server's host from what this machine offers. Only composition roots import it: a server is given
 * its host, it does not make one. What the first request of its kind needs is loaded by that request.
 */

import { ByteLedger } from "../async/memory-budget.ts";
import { localEnvironment } from "../environment/environment-service.ts";
import { RetentionBudget } from "../exec/log/retention-budget.ts";
import type { KeptMachine } from "../local/kept-child.ts";
import type { LocalBackend } from "../local/local-backend.ts";
import { requireNodeThreads } from "../native/libuv-threads.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { HiddenFiles } from "../sandbox/masked-paths.ts";
import type { WalledPeers } from "../sandbox/sandboxed-peers.ts";
import type {
  ForwardService,
  HostServices,
  HttpRequests,
  HttpService,
  ServerLog,
  WalledFileServers,
} from "../server/host-services.ts";
import {
  DEFAULT_SERVER_CAPS,
  DEFAULT_SERVER_CONFIG,
  MEMORY_SHARES,
  type ServerConfig,
} from "../server/server-config.ts";
import { missingWatchdog } from "../server/watchdog.ts";
import { VERSION } from "../version.ts";
import { keepFreedMemory, thisWire } from "./native-support.ts";
import { createLocalBackend } from "./this-machine.ts";

export interface LocalHostOptions {
  log?: ServerLog;
  config?: Partial<ServerConfig>;
  /** Files that nobody behind walls may reach: the sockets of the server, its tokens and secrets. */
  hidden?: readonly string[];
  /** Orphans of started programs come to this program, which reaps them. For a server program, not for a library. */
  subreaper?: boolean;
  /** For programs that use the backend without a server: refuses an id that a live process has; errors name the caller. */
  calledDirectly?: boolean;
  /** Keeps freed memory for the next chunk instead of giving it back each time. For a server program, not for a library. */
  keepFreedMemory?: boolean;
  /** The keeper above this program: processes can outlive it. */
  keeper?: KeptMachine | undefined;
}

/** A host, and its backend for programs that use it without a server. */
export interface LocalHost extends HostServices {
  readonly backend: LocalBackend;
}

export function createLocalHost(options: LocalHostOptions = {}): LocalHost {
  const log: ServerLog = options.log ?? (() => undefined);
  const retainedBytes = options.config?.retainedOutputBytes;
  const memory = new ByteLedger(options.config?.memoryBudgetBytes ?? DEFAULT_SERVER_CONFIG.memoryBudgetBytes);
  const budget = (part: number) => new RetentionBudget(memory.maxBytes * part, memory);
  let hidden: HiddenFiles | null = null;
  const hiddenFiles = async () => {
    const { HiddenFiles } = await import("../sandbox/masked-paths.ts");
    hidden ??= new HiddenFiles(options.hidden ?? []);
    return hidden;
  };
  let walledPeers: WalledPeers | null = null;
  const backend = createLocalBackend({
    budget: budget(MEMORY_SHARES.retention),
    snapshotBudget: budget(MEMORY_SHARES.snapshots),
    calledDirectly: options.calledDirectly ?? false,
    subreaper: options.subreaper ?? false,
    keeper: options.keeper,
    degraded: options.subreaper ? unguarded() : [],
    onOrphansEnded: (orphans) => log("warn", "ended orphans that belonged to no known process", { orphans }),
    onCgroupFailed: (error) =>
      log("warn", "processes have no cgroup each, only the marks of their descendants", { error }),
    resolveSandbox: async (intent, params) => {
      const [{ resolveSandbox }, { WalledPeers }] = await Promise.all([
        import("../sandbox/resolve-sandbox.ts"),
        import("../sandbox/sandboxed-peers.ts"),
      ]);
      const onNetworked = (pid: number) => {
        walledPeers ??= new WalledPeers();
        return walledPeers.add(pid);
      };
      return resolveSandbox(intent, params, { hidden: await hiddenFiles(), onNetworked });
    },
    eventLogLimits: retainedBytes === undefined ? {} : { retainedBytes },
  });
  if (options.config?.limits) backend.requireLimits(options.config.limits);
  if (options.keepFreedMemory) keepFreedMemory();
  let walled: Promise<WalledFileServers> | null = null;
  let isClosed = false;
  const openWalled = async (): Promise<WalledFileServers> => {
    const { BubblewrappedFiles } = await import("./sandboxed-files.ts");
    const hidden = await hiddenFiles();
    const cap = options.config?.caps?.walledFileServers ?? DEFAULT_SERVER_CAPS.walledFileServers;
    return new BubblewrappedFiles({ hidden, cap, onEnded: () => backend.expectOrphans() });
  };
  return {
    backend,
    memory,
    wire: thisWire(),
    files: async () => {
      requireNodeThreads();
      return (await import("../files/local-file-system.ts")).localFileSystem;
    },
    walledFiles: {
      behind: async (intent, scope) => {
        // A request may outlive its connection, and what it opens now would be closed by nobody.
        if (isClosed) throw invalidRequest("server is shutting down");
        walled ??= openWalled();
        return (await walled).behind(intent, scope);
      },
      close: async () => {
        isClosed = true;
        await (await walled)?.close();
      },
    },
    isWalledPeer: (peer) => walledPeers?.isInside(peer) ?? false,
    http: localHttp(log),
    forward: localForward(),
    environment: localEnvironment({
      version: VERSION,
      beforeReading: requireNodeThreads,
      degraded: () => backend.degraded(),
      sandboxes: async () => {
        const { availableSandboxes } = await import("../sandbox/sandbox-probe.ts");
        // The probe of bubblewrap leaves a zombie behind.
        backend.expectOrphans();
        return availableSandboxes();
      },
    }),
    log,
  };
}

/** Only a server program has a watchdog; a library ends with the program it is part of. */
function unguarded(): string[] {
  const missing = missingWatchdog();
  return missing === null ? [] : [missing];
}

/** Loaded by the first stream: most servers never have one. */
function localForward(): ForwardService {
  const tcp = async () => {
    requireNodeThreads();
    return await import("../forward/tcp-streams.ts");
  };
  return {
    connect: async (host, port, signal) => (await tcp()).connectTcp(host, port, signal),
    listen: async (host, port, onStream) => (await tcp()).listenTcp(host, port, onStream),
    listeningPorts: async (leaders) =>
      (await import("../local/listening-ports.ts")).listeningPortsOf(leaders),
  };
}

function localHttp(log: ServerLog): HttpService {
  return {
    open(sink, enter) {
      let requests: Promise<HttpRequests> | null = null;
      const open = async () => {
        const { HttpRequests } = await import("../http/http-request.ts");
        const onError = (error: unknown) =>
          log("error", "a streamed HTTP body failed", { error: String(error) });
        return new HttpRequests({ sink, onError, enter });
      };
      return {
        request: async (params, admit) => {
          requireNodeThreads();
          requests ??= open();
          return (await requests).request(params, admit);
        },
        close: () => void requests?.then((opened) => opened.close()),
      };
    },
  };
}
