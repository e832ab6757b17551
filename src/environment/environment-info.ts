import { accessSync, constants } from "node:fs";
import { homedir } from "node:os";
import { basename, resolve } from "node:path";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import { uriFromPath } from "../protocol/path-uri.ts";

export interface EnvironmentInfoOptions {
  version: string;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Unavailable features of the server, as readable text. */
  degraded?: string[];
}

/** Part of every handshake, so it is fast: it reads a few environment variables and at most three files. */
export function environmentInfo(options: EnvironmentInfoOptions): EnvironmentInfo {
  const env = options.env ?? process.env;
  const cwd = options.cwd ?? process.cwd();
  const temporary = env.TMPDIR ? resolve(cwd, env.TMPDIR) : null;
  return {
    shell: findShell(env),
    executorVersion: options.version,
    // All servers of a version and platform share it. It is not a digest, because node:crypto takes too long to load.
    providerId: `procwire:${options.version}:${process.platform}-${process.arch}`,
    cwd: uriFromPath(cwd),
    userHomeDir: uriFromPath(homeDirectory(env)),
    platformOs: process.platform === "darwin" ? "macos" : process.platform,
    prependPathDirs: [],
    temporaryDirectories: temporary === null ? [] : [uriFromPath(temporary)],
    tempDir: uriFromPath(temporary ?? "/tmp"),
    capabilities: { ...CAPABILITIES },
    degraded: options.degraded ?? [],
  };
}

export function homeDirectory(env: NodeJS.ProcessEnv): string {
  return env.HOME || homedir();
}

/**
 * A client calls a method only if its flag is set. `capabilityDiscoveryV2` is off although the method exists: it omits plugins
 * and YAML declarations of skills. Without the flag a client discovers both on its own.
 */
const CAPABILITIES: Readonly<Record<string, boolean>> = {
  networkProxyLaunch: false,
  networkProxyReviewDomains: false,
  credentialMasking: false,
  credentialMaskingCustomProviders: false,
  capabilityDiscoverySandbox: false,
  fsWatchMissing: true,
  capabilityDiscoveryV2: false,
  environmentConfigRead: true,
  httpHeaderEnvVars: true,
  sandboxedFileStreaming: false,
  fileWriteStreaming: true,
  shellSnapshotV2: false,
  windowsMxc: false,
  linuxRootWritePreservesDevices: false,
  linuxApprovedRootWritePreservesRestrictions: false,
};

/** The shells that clients support. */
const KNOWN_SHELLS = ["zsh", "bash", "sh"];

/** Returns the user's shell if clients support it, otherwise bash or sh. */
function findShell(env: NodeJS.ProcessEnv): { name: string; path: string } {
  const own = env.SHELL ?? "";
  const candidates = KNOWN_SHELLS.includes(basename(own)) ? [own] : [];
  candidates.push("/bin/bash", "/usr/bin/bash");
  const path = candidates.find(isExecutable) ?? "/bin/sh";
  return { name: basename(path), path };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
