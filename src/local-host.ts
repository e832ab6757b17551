/**
 * The composition of a server's host from what this machine offers. Only composition roots import it: a server is given
 * its host, it does not make one. What the first request of its kind needs is loaded by that request.
 */

import { TurnFlusher } from "./connection/turn-flusher.ts";
import type { WireTuning } from "./connection/wire-tuning.ts";
import { localEnvironment } from "./environment/local-environment.ts";
import { RetentionBudget } from "./exec/retention-budget.ts";
import { createLocalBackend } from "./local/local-backend.ts";
import { loadNative } from "./native/addon.ts";
import { requireNodeThreads } from "./native/node-threads.ts";
import { nativeListener } from "./native/wire.ts";
import type {
  HostServices,
  HttpRequests,
  HttpService,
  ServerLog,
  WalledFileServers,
} from "./server/host-services.ts";
import type { ServerConfig } from "./server/limits.ts";
import { VERSION } from "./version.ts";

export interface LocalHostOptions {
  log?: ServerLog;
  config?: Partial<ServerConfig>;
  /** Orphans of started programs come to this program, which reaps them. For a server program, not for a library. */
  subreaper?: boolean;
}

export function createLocalHost(options: LocalHostOptions = {}): HostServices {
  const log: ServerLog = options.log ?? (() => undefined);
  const retainedBytes = options.config?.retainedOutputBytes;
  const backend = createLocalBackend({
    budget: new RetentionBudget(),
    subreaper: options.subreaper ?? false,
    onOrphansEnded: (orphans) => log("warn", "ended orphans that belonged to no process known", { orphans }),
    resolveSandbox: async (intent, params) => {
      const { resolveSandbox } = await import("./sandbox/resolve-sandbox.ts");
      return resolveSandbox(intent, params);
    },
    ...(retainedBytes !== undefined && { eventLogLimits: { retainedBytes } }),
  });
  let walled: WalledFileServers | null = null;
  return {
    backend,
    files: async () => {
      requireNodeThreads();
      return (await import("./files/local-file-system.ts")).localFileSystem;
    },
    walledFiles: {
      behind: async (intent) => {
        walled ??= new (await import("./walled-files.ts")).BubblewrappedFiles();
        return walled.behind(intent);
      },
      close: () => walled?.close(),
    },
    http: localHttp(log),
    environment: localEnvironment({
      version: VERSION,
      beforeReading: requireNodeThreads,
      degraded: () => backend.degraded(),
      sandboxes: async () => (await import("./sandbox/available.ts")).availableSandboxes(),
    }),
    log,
  };
}

/**
 * For a server program: the native loops for bytes, sockets that the addon reads and writes, and for stdio one last look
 * at the processes before a turn's messages leave.
 */
export function nativeTuning(): WireTuning {
  const native = loadNative();
  if (native.type === "missing") return {};
  const { spawner } = native;
  spawner.keepFreedMemory();
  return {
    codec: spawner,
    flusher: new TurnFlusher(() => spawner.pump()),
    listenAt: nativeListener(spawner),
  };
}

function localHttp(log: ServerLog): HttpService {
  return {
    open(sink) {
      let requests: Promise<HttpRequests> | null = null;
      const open = async () => {
        const { HttpRequests } = await import("./http/http-request.ts");
        const onError = (error: unknown) =>
          log("error", "a streamed HTTP body failed", { error: String(error) });
        return new HttpRequests({ sink, onError });
      };
      return {
        request: async (params) => {
          requireNodeThreads();
          requests ??= open();
          return (await requests).request(params);
        },
        close: () => void requests?.then((opened) => opened.close()),
      };
    },
  };
}
