import { spawnSync } from "node:child_process";
import { accessSync, closeSync, constants, statSync } from "node:fs";
import { join } from "node:path";
import { OTHER_RUNTIME } from "../base/js-runtime.ts";
import type { ListenerSupport } from "../exec/backend/listener-channel.ts";
import type { SandboxPrograms } from "./bubblewrap.ts";
import { openPath } from "./inherited-fds.ts";
import { buildSandboxCommand, type CommandToSandbox } from "./sandbox-command.ts";
import { seccompArchFor } from "./seccomp-filter.ts";

/** The name of this sandbox in the environment info of a host. */
export const BUBBLEWRAP = "bubblewrap";

/** A successful probe takes about 10 ms. */
const PROBE_TIMEOUT_MS = 5000;

/** System directories that only root can change. */
const TRUSTED_DIRECTORIES = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];

let found: { programs: SandboxPrograms | null } | null = null;

/**
 * Returns the sandboxes that work on this host. An installed bubblewrap may fail, because user namespaces may be blocked.
 * So this function runs it once with a typical policy and caches the result.
 */
export function availableSandboxes(): string[] {
  return sandboxPrograms() ? [BUBBLEWRAP] : [];
}

/** Reports whether bubblewrap is installed, without running it. */
export function isBubblewrapInstalled(): boolean {
  return process.platform === "linux" && findProgram("bwrap", TRUSTED_DIRECTORIES) !== null;
}

/** Returns absolute paths, which no environment variable changes; null if no sandbox works. */
export function sandboxPrograms(): SandboxPrograms | null {
  found ??= { programs: OTHER_RUNTIME === null ? probeSandboxes(TRUSTED_DIRECTORIES) : null };
  return found.programs;
}

let hasListeners: boolean | null = null;

/** Reports whether a sandbox of this host can have a managed network. Runs a sandbox once and caches the result. */
export function supportsManagedNetwork(support: ListenerSupport | null): boolean {
  const programs = sandboxPrograms();
  if (!programs || !support) return false;
  hasListeners ??= canRunSandbox(programs, { ports: [PROBED_PORT], support });
  return hasListeners;
}

/** Any port that needs no privilege. */
const PROBED_PORT = 1024;

/** Probes the executables of these directories without caching. */
export function probeSandboxes(directories: readonly string[]): SandboxPrograms | null {
  const arch = process.platform === "linux" ? seccompArchFor() : null;
  const env = findProgram("env", directories);
  const shell = findProgram("sh", directories);
  const bwrap = findProgram("bwrap", directories);
  if (arch === null || env === null || bwrap === null) return null;
  const isSetuid = (statSync(bwrap).mode & SETUID) !== 0;
  for (const bindsDescriptors of [true, false])
    for (const sh of shell === null ? [null] : [shell, null]) {
      const programs = { env, bwrap, arch, bindsDescriptors, isSetuid, sh };
      if (canRunSandbox(programs)) return programs;
    }
  return null;
}

function canRunSandbox(programs: SandboxPrograms, listeners?: CommandToSandbox["listeners"]): boolean {
  let directory: number | null = null;
  try {
    directory = openPath("/");
    using command = buildSandboxCommand(
      {
        roots: [
          { path: "/", access: "read" },
          // Opened, so that the probe covers binding by descriptor.
          { path: "/usr", access: "write", opened: true },
        ],
        cwd: "/",
        network: false,
        tmp: "private",
        devices: "minimal",
      },
      { argv: ["/bin/true"], env: {}, directory, listeners },
      programs,
    );
    const { file, argv, env, descriptors, channel } = command;
    const result = spawnSync(file, argv.slice(1), {
      stdio: ["ignore", "ignore", "ignore", ...descriptors],
      timeout: PROBE_TIMEOUT_MS,
      env,
    });
    channel?.close();
    return result.status === 0;
  } catch {
    // Unnamed files are unsupported, or /usr is a link: no sandbox.
    return false;
  } finally {
    if (directory !== null) closeSync(directory);
  }
}

/** Skips executables that a user other than root can change. */
function findProgram(name: string, directories: readonly string[]): string | null {
  for (const directory of directories) {
    const file = join(directory, name);
    try {
      accessSync(file, constants.X_OK);
      const { uid, mode } = statSync(file);
      if (uid === 0 && (mode & WRITABLE_BY_OTHERS) === 0) return file;
    } catch {
      // Not in this directory.
    }
  }
  return null;
}

const WRITABLE_BY_OTHERS = 0o022;
const SETUID = 0o4000;
