import { accessSync, constants } from "node:fs";
import { homedir } from "node:os";
import { basename, resolve } from "node:path";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import { uriFromPath } from "../protocol/path-uri.ts";

export interface EnvironmentInfoOptions {
  version: string;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Parts of the server that do not work here, described for a person. */
  degraded?: string[];
}

/** Part of every handshake, so it is cheap: reads a few environment variables and asks the disk at most three times. */
export function environmentInfo(options: EnvironmentInfoOptions): EnvironmentInfo {
  const env = options.env ?? process.env;
  const cwd = options.cwd ?? process.cwd();
  const temporary = env.TMPDIR ? resolve(cwd, env.TMPDIR) : null;
  return {
    shell: findShell(env),
    executorVersion: options.version,
    providerId: providerId(options.version),
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
 * A client calls a method only if its flag is set. `capabilityDiscoveryV2` stays off although the method
 * answers: it leaves out plugins and what skills declare in YAML, and without the flag a client finds both by itself.
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

/** The shells whose command line clients know. */
const KNOWN_SHELLS = ["zsh", "bash", "sh"];

/** The user's own shell where clients know it, else the best there is. */
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

/** The same for every server of this version and kind of machine. No digest: node:crypto takes too long to load. */
function providerId(version: string): string {
  return `procwire:${version}:${process.platform}-${process.arch}`;
}
