/**
 * The composition of a server's host from what this machine offers. Only composition roots import it: a server is given
 * its host, it does not make one.
 */

import type { ByteCodec } from "./connection/byte-codec.ts";
import { RetentionBudget } from "./exec/retention-budget.ts";
import { createLocalBackend } from "./local/local-backend.ts";
import type { HostServices, ServerLog } from "./server/host-services.ts";
import type { ServerConfig } from "./server/limits.ts";

export interface LocalHostOptions {
  log?: ServerLog;
  config?: Partial<ServerConfig>;
  /** Orphans of started programs come to this program, which reaps them. For a server program, not for a library. */
  subreaper?: boolean;
}

export function createLocalHost(options: LocalHostOptions = {}): HostServices {
  const retainedBytes = options.config?.retainedOutputBytes;
  const backend = createLocalBackend({
    budget: new RetentionBudget(),
    subreaper: options.subreaper ?? false,
    ...(retainedBytes !== undefined && { eventLogLimits: { retainedBytes } }),
  });
  return {
    backend,
    files: async () => (await import("./files/local-file-system.ts")).localFileSystem,
    http: {
      open: () => ({
        request: async () => {
          throw new Error("http");
        },
        close: () => undefined,
      }),
    },
    environment: {
      info: () => ({ shell: { name: "bash", path: "/bin/bash" } }),
      readConfig: async () => ({}),
      discoverRoots: async () => ({}),
      discover: async () => ({}),
    },
    ...(options.log && { log: options.log }),
  };
}

export function nativeByteCodec(): ByteCodec | null {
  return null;
}
