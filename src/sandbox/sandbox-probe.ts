import { spawnSync } from "node:child_process";
import { accessSync, closeSync, constants, statSync } from "node:fs";
import { join } from "node:path";
import type { SandboxPrograms } from "./bubblewrap.ts";
import { openPath } from "./inherited-fds.ts";
import { buildSandboxCommand } from "./sandbox-command.ts";
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

/** Returns absolute paths, which no environment variable changes; null if no sandbox works. */
export function sandboxPrograms(): SandboxPrograms | null {
  found ??= { programs: probeSandboxes(TRUSTED_DIRECTORIES) };
  return found.programs;
}

/** Probes the executables of these directories without caching. */
export function probeSandboxes(directories: readonly string[]): SandboxPrograms | null {
  const arch = process.platform === "linux" ? seccompArchFor() : null;
  const env = findProgram("env", directories);
  const shell = findProgram("sh", directories);
  const bwrap = findProgram("bwrap", directories);
  if (arch === null || env === null || bwrap === null) return null;
  for (const bindsDescriptors of [true, false])
    for (const sh of shell === null ? [null] : [shell, null]) {
      const programs = { env, bwrap, arch, bindsDescriptors, sh };
      if (canRunSandbox(programs)) return programs;
    }
  return null;
}

function canRunSandbox(programs: SandboxPrograms): boolean {
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
      { argv: ["/bin/true"], env: {}, directory },
      programs,
    );
    const { file, argv, env, descriptors } = command;
    const result = spawnSync(file, argv.slice(1), {
      stdio: ["ignore", "ignore", "ignore", ...descriptors],
      timeout: PROBE_TIMEOUT_MS,
      env,
    });
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
