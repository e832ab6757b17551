/**
 * Composes the host services of a server from the local parts. Only composition roots import it: a server receives
 * its host. Each part is imported by the first request that needs it.
 */

import { MemoryBudget } from "../async/memory-budget.ts";
import { createEnvironmentService } from "../environment/environment-service.ts";
import { RetentionBudget } from "../exec/log/retention-budget.ts";
import type { LocalBackend } from "../local/local-backend.ts";
import type { SupervisorChannel } from "../local/persistent/persistent-child.ts";
import { requireLibuvThreads } from "../native/libuv-threads.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type {
  ForwardService,
  HostServices,
  HttpRequestScope,
  HttpService,
  SandboxedFileServers,
  ServerLog,
} from "../server/host-services.ts";
import { watchdogWarning } from "../server/lifecycle/watchdog-client.ts";
import {
  DEFAULT_SERVER_CAPS,
  DEFAULT_SERVER_CONFIG,
  MEMORY_SHARES,
  type ServerConfig,
} from "../server/server-config.ts";
import { VERSION } from "../version.ts";
import { createLocalBackend } from "./create-local-backend.ts";
import { localSandbox } from "./local-sandbox.ts";
import { nativeSocketsIfAvailable, retainFreedMemory } from "./native-support.ts";

export interface CreateLocalHostOptions {
  log?: ServerLog;
  config?: Partial<ServerConfig>;
  /** Files that are hidden from sandboxed processes: the server's sockets, tokens and secrets. */
  maskedPaths?: readonly string[];
  /** Makes this process a subreaper, which adopts and reaps orphans. For a server, not for a library. */
  subreaper?: boolean;
  /** For applications that use the backend without a server: rejects ids of live processes; errors contain the caller's stack. */
  calledDirectly?: boolean;
  /** Retains freed memory for the next chunk. For a server, not for a library. */
  keepFreedMemory?: boolean;
  /** The supervisor of this server, which enables persistent processes. */
  supervisor?: SupervisorChannel | undefined;
}

/** Host services with the backend, for applications that use it without a server. */
export interface LocalHost extends HostServices {
  readonly backend: LocalBackend;
}

export function createLocalHost(options: CreateLocalHostOptions = {}): LocalHost {
  const log: ServerLog = options.log ?? (() => undefined);
  const retainedBytes = options.config?.retainedOutputBytes;
  const memory = new MemoryBudget(options.config?.memoryBudgetBytes ?? DEFAULT_SERVER_CONFIG.memoryBudgetBytes);
  const budget = (share: number) => new RetentionBudget(memory.maxBytes * share, memory);
  const sandbox = localSandbox(options.maskedPaths);
  const backend = createLocalBackend({
    budget: budget(MEMORY_SHARES.retention),
    snapshotBudget: budget(MEMORY_SHARES.snapshots),
    isLibrary: options.calledDirectly ?? false,
    subreaper: options.subreaper ?? false,
    supervisor: options.supervisor,
    degraded: options.subreaper ? missingWatchdogWarnings() : [],
    onOrphansEnded: (orphans) => log("warn", "killed orphans of unknown process trees", { orphans }),
    onCgroupFailed: (error) =>
      log("warn", "process cgroups unavailable; descendants are tracked by tree tags only", { error }),
    resolveSandbox: sandbox.resolve,
    eventLogLimits: retainedBytes === undefined ? {} : { retainedBytes },
  });
  if (options.config?.limits) backend.requireLimits(options.config.limits);
  if (options.keepFreedMemory) retainFreedMemory();
  let sandboxedFiles: Promise<SandboxedFileServers> | null = null;
  let isClosed = false;
  const openSandboxedFiles = async (): Promise<SandboxedFileServers> => {
    const { SandboxedFiles } = await import("./sandboxed-files.ts");
    const maskedPaths = await sandbox.maskedPaths();
    const cap = options.config?.caps?.sandboxedFileServers ?? DEFAULT_SERVER_CAPS.sandboxedFileServers;
    return new SandboxedFiles({ maskedPaths, cap, onEnded: () => backend.trackOrphans() });
  };
  return {
    backend,
    memory,
    sockets: nativeSocketsIfAvailable(),
    files: async () => {
      requireLibuvThreads();
      return (await import("../files/local-file-system.ts")).localFileSystem;
    },
    sandboxedFiles: {
      forSandbox: async (request, scope) => {
        // A request may outlive its connection. A server that it starts now would never be closed.
        if (isClosed) throw invalidRequest("server is shutting down");
        sandboxedFiles ??= openSandboxedFiles();
        return (await sandboxedFiles).forSandbox(request, scope);
      },
      close: async () => {
        isClosed = true;
        await (await sandboxedFiles)?.close();
      },
    },
    isSandboxedPeer: sandbox.isSandboxedPeer,
    http: localHttp(log),
    forward: localForward(),
    environment: createEnvironmentService({
      version: VERSION,
      beforeReading: requireLibuvThreads,
      degraded: () => backend.degradedComponents(),
      sandboxes: async () => {
        const { availableSandboxes } = await import("../sandbox/sandbox-probe.ts");
        // The bubblewrap probe leaves a zombie.
        backend.trackOrphans();
        return availableSandboxes();
      },
    }),
    log,
  };
}

/** Only a server has a watchdog; a library ends with its process. */
function missingWatchdogWarnings(): string[] {
  const missing = watchdogWarning();
  return missing === null ? [] : [missing];
}

/** The first stream imports the code, because most servers never have one. */
function localForward(): ForwardService {
  const tcp = async () => {
    requireLibuvThreads();
    return await import("../forward/tcp-streams.ts");
  };
  return {
    connect: async (host, port, signal) => (await tcp()).connectTcp(host, port, signal),
    listen: async (host, port, onStream) => (await tcp()).listenTcp(host, port, onStream),
    listeningPorts: async (leaders) => (await import("../local/listening-ports.ts")).listeningPortsOf(leaders),
  };
}

function localHttp(log: ServerLog): HttpService {
  return {
    open(sink, acquire) {
      let requests: Promise<HttpRequestScope> | null = null;
      const open = async () => {
        const { HttpRequests } = await import("../http/http-request.ts");
        const onError = (error: unknown) => log("error", "a streamed HTTP body failed", { error: String(error) });
        return new HttpRequests({ sink, onError, acquire });
      };
      return {
        request: async (params, admit) => {
          requireLibuvThreads();
          requests ??= open();
          return (await requests).request(params, admit);
        },
        close: () => void requests?.then((opened) => opened.close()),
      };
    },
  };
}
