/**
 * Composes the host services of a server from the local parts. Only composition roots import it: a server receives
 * its host. Each part is imported by the first request that needs it.
 */

import { systemClock } from "../async/clock.ts";
import { GarbagePressure } from "../async/garbage-pressure.ts";
import { LazyResource } from "../async/lazy-resource.ts";
import { MemoryBudget } from "../async/memory-budget.ts";
import { createEnvironmentService } from "../environment/environment-service.ts";
import { PrincipalMemories } from "../exec/log/principal-memory.ts";
import { RetentionBudget } from "../exec/log/retention-budget.ts";
import { callback, checkOptions, each, flag, listOf, optionsOf, text } from "../exec/options/option-schema.ts";
import type { FileSystem } from "../files/file-system.ts";
import type { LocalBackend } from "../local/local-backend.ts";
import type { SupervisorChannel } from "../local/persistent/persistent-child.ts";
import { type MemoryLimit, readMemoryLimit } from "../local/tree/cgroup-memory.ts";
import { requireLibuvThreads } from "../native/libuv-threads.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { parseCredential, requireUniqueNames } from "../protocol/network/credential-definition.ts";
import type {
  ForwardService,
  HostServices,
  HttpRequestScope,
  HttpService,
  SandboxedFileServers,
  ServerLog,
} from "../server/host-services.ts";
import { watchdogWarnings } from "../server/lifecycle/watchdog-client.ts";
import { memoryQuotaOf, principalLimit } from "../server/principal-quotas.ts";
import { DEFAULT_SERVER_CAPS, MEMORY_SHARES, type ServerConfig } from "../server/server-config.ts";
import { serverConfig } from "../server/server-options.ts";
import { VERSION } from "../version.ts";
import { createLocalBackend, supervisorKind } from "./create-local-backend.ts";
import { localSandbox } from "./local-sandbox.ts";
import { defaultMemoryBudget, MemoryMonitor } from "./memory-monitor.ts";
import {
  landlockVersion,
  listenerSupportIfAvailable,
  nativeFileTreesIfAvailable,
  nativeSocketsIfAvailable,
  releaseFreeMemory,
  retainFreedMemory,
} from "./native-support.ts";
import { localNetwork, secretFilesOf } from "./network/local-network.ts";

export interface CreateLocalHostOptions {
  log?: ServerLog;
  config?: Partial<ServerConfig>;
  /** Files that are hidden from sandboxed processes: the server's sockets, tokens and secrets. */
  maskedPaths?: readonly string[];
  /** Further files of the server, which may be in the directory of a masked secret. */
  ownFiles?: readonly string[] | undefined;
  /** Offers no sandboxes: rejects every request for one. */
  noSandbox?: boolean | undefined;
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

const localHostOptions = optionsOf<CreateLocalHostOptions>(() => ({
  log: callback,
  config: serverConfig,
  ...each(listOf(text, "an array of strings"), "maskedPaths", "ownFiles"),
  ...each(flag, "noSandbox", "subreaper", "calledDirectly", "keepFreedMemory"),
  supervisor: supervisorKind,
}));

export function createLocalHost(options: CreateLocalHostOptions = {}): LocalHost {
  checkOptions("createLocalHost", options, localHostOptions);
  const log: ServerLog = options.log ?? (() => undefined);
  const retainedBytes = options.config?.retainedOutputBytes;
  const limit = options.keepFreedMemory ? readMemoryLimit() : null;
  const memory = new MemoryBudget(options.config?.memoryBudgetBytes ?? defaultMemoryBudget(limit?.bytes ?? null));
  if (limit) monitorMemory(memory, limit, log);
  const credentials = (options.config?.credentials ?? []).map(parseCredential);
  requireUniqueNames(credentials);
  const sandbox = localSandbox({
    masked: [...(options.maskedPaths ?? []), ...secretFilesOf(credentials)],
    ownFiles: options.ownFiles,
    noSandbox: options.noSandbox,
    ownerPid: options.supervisor?.pid,
  });
  const retention = new RetentionBudget(memory.maxBytes * MEMORY_SHARES.retention, memory);
  const snapshots = new RetentionBudget(memory.maxBytes * MEMORY_SHARES.snapshots, memory, "caches");
  const quotaBytes = memoryQuotaOf(options.config ?? {}, memory.maxBytes);
  const principalMemories =
    quotaBytes < memory.maxBytes ? new PrincipalMemories(quotaBytes, memory, { retention, snapshots }) : undefined;
  const backend = createLocalBackend({
    budget: retention,
    snapshotBudget: snapshots,
    principalMemories,
    isLibrary: options.calledDirectly ?? false,
    subreaper: options.subreaper ?? false,
    supervisor: options.supervisor,
    // Only a server has a watchdog; a library ends with its process.
    degraded: options.subreaper ? watchdogWarnings() : [],
    onOrphansEnded: (orphans) => log("warn", "killed orphans of unknown process trees", { orphans }),
    onCgroupFailed: (error) =>
      log("warn", "process cgroups unavailable; descendants are tracked by tree tags only", { error }),
    resolveSandbox: sandbox.resolve,
    credentials,
    createNetwork: localNetwork({ privateViaUpstream: options.config?.proxyPrivateIpsViaUpstream, credentials }),
    restoreSandbox: sandbox.restore,
    eventLogLimits: retainedBytes === undefined ? {} : { retainedBytes },
  });
  if (options.config?.limits) backend.requireLimits(options.config.limits);
  if (options.keepFreedMemory) {
    retainFreedMemory();
    const residentBytes = process.memoryUsage.rss;
    new GarbagePressure({ budget: memory, clock: systemClock, residentBytes, releaseMemory: releaseFreeMemory });
  }
  const files = new LazyResource(async (): Promise<FileSystem> => {
    const { createLocalFileSystem } = await import("../files/local-file-system.ts");
    return createLocalFileSystem(await nativeFileTreesIfAvailable());
  });
  const sandboxedFiles = new LazyResource(async (): Promise<SandboxedFileServers> => {
    const { SandboxedFiles } = await import("./sandboxed-files.ts");
    const maskedPaths = await sandbox.maskedPaths();
    const cap = options.config?.caps?.sandboxedFileServers ?? DEFAULT_SERVER_CAPS.sandboxedFileServers;
    const maxPerPrincipal = (others: number) => principalLimit(options.config ?? {}, cap.total, others);
    return new SandboxedFiles({ maskedPaths, cap, maxPerPrincipal, onEnded: () => backend.trackOrphans() });
  });
  let isClosed = false;
  const openSandboxedFiles = async (): Promise<SandboxedFileServers> => {
    // A request may outlive its connection. A server that it starts now would never be closed.
    if (isClosed) throw invalidRequest("server is shutting down");
    return sandboxedFiles.get();
  };
  return {
    backend,
    memory,
    principalMemories,
    sockets: nativeSocketsIfAvailable(),
    files: async () => {
      requireLibuvThreads();
      return files.get();
    },
    sandboxedFiles: {
      forSandbox: async (request, scope) => (await openSandboxedFiles()).forSandbox(request, scope),
      forRoots: async (roots, scope) => (await openSandboxedFiles()).forRoots(roots, scope),
      close: async () => {
        isClosed = true;
        await sandboxedFiles.close((servers) => servers.close());
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
        if (options.noSandbox) return [];
        const { availableSandboxes } = await import("../sandbox/sandbox-probe.ts");
        // The bubblewrap probe leaves a zombie.
        backend.trackOrphans();
        return availableSandboxes();
      },
      landlockVersion: options.noSandbox ? () => null : landlockVersion,
      hasManagedNetwork: async () => {
        if (options.noSandbox) return false;
        const { supportsManagedNetwork } = await import("../sandbox/sandbox-probe.ts");
        backend.trackOrphans();
        return supportsManagedNetwork(listenerSupportIfAvailable());
      },
    }),
    log,
  };
}

/** Watches the memory of the container, if it has a limit. */
function monitorMemory(budget: MemoryBudget, { bytes, usedBytes }: MemoryLimit, log: ServerLog): void {
  if (!usedBytes) return;
  new MemoryMonitor({
    budget,
    limit: { bytes, usedBytes },
    clock: systemClock,
    releaseMemory: releaseFreeMemory,
    onChange: (isLowered) =>
      isLowered
        ? log("warn", "the container is almost out of memory; the memory budget is lowered", { limitBytes: bytes })
        : log("info", "the memory budget is back at its maximum", { limitBytes: bytes }),
  });
}

/** The first stream imports the code, because most servers never have one. */
function localForward(): ForwardService {
  const tcp = async () => {
    requireLibuvThreads();
    return await import("../forward/tcp-streams.ts");
  };
  return {
    connect: async (address, signal) => (await tcp()).connectAddress(address, signal),
    listen: async (address, onStream) => (await tcp()).listenAddress(address, onStream),
    listeningPorts: async (leaders) => (await import("../local/listening-ports.ts")).listeningPortsOf(leaders),
  };
}

function localHttp(log: ServerLog): HttpService {
  return {
    open(sink, acquire) {
      let requests: LazyResource<HttpRequestScope> | null = null;
      const open = async (): Promise<HttpRequestScope> => {
        const { HttpRequests } = await import("../http/http-request.ts");
        const onError = (error: unknown) => log("error", "a streamed HTTP body failed", { error: String(error) });
        return new HttpRequests({ sink, onError, acquire });
      };
      return {
        request: async (params, admit) => {
          requireLibuvThreads();
          requests ??= new LazyResource(open);
          return (await requests.get()).request(params, admit);
        },
        close: () => void requests?.close((opened) => opened.close()),
      };
    },
  };
}
