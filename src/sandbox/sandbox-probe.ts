import { spawnSync } from "node:child_process";
import { accessSync, closeSync, constants, statSync } from "node:fs";
import { join } from "node:path";
import type { SandboxPrograms } from "./bubblewrap.ts";
import { openPlace } from "./inherited-fds.ts";
import { raiseWalls } from "./sandbox-command.ts";
import { filterArch } from "./seccomp-filter.ts";

/** The name under which a host tells that it has bubblewrap. */
export const BUBBLEWRAP = "bubblewrap";

/** A healthy probe takes some 10 ms. */
const PROBE_TIMEOUT_MS = 5000;

/** Where systems put the programs that everybody uses and only root may change. */
const TRUSTED_PLACES = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];

let found: { programs: SandboxPrograms | null } | null = null;

/**
 * Which sandboxes this host really has. Bubblewrap being installed is not enough, since user namespaces may be
 * blocked: so it is run once, with the walls that would be used, and the answer is remembered.
 */
export function availableSandboxes(): string[] {
  return sandboxPrograms() ? [BUBBLEWRAP] : [];
}

/** The programs by their full path, which no environment changes; null without a sandbox. */
export function sandboxPrograms(): SandboxPrograms | null {
  found ??= { programs: probe(TRUSTED_PLACES) };
  return found.programs;
}

/** The probe itself, for given places. */
export function probe(places: readonly string[]): SandboxPrograms | null {
  const arch = process.platform === "linux" ? filterArch() : null;
  const env = findProgram("env", places);
  const shell = findProgram("sh", places);
  const bwrap = findProgram("bwrap", places);
  if (arch === null || env === null || bwrap === null) return null;
  for (const bindsDescriptors of [true, false])
    for (const sh of shell === null ? [null] : [shell, null]) {
      const programs = { env, bwrap, arch, bindsDescriptors, sh };
      if (worksWith(programs)) return programs;
    }
  return null;
}

function worksWith(programs: SandboxPrograms): boolean {
  let directory: number | null = null;
  try {
    directory = openPlace("/");
    using walls = raiseWalls(
      {
        roots: [
          { path: "/", access: "read" },
          // So that a descriptor is bound, where they are.
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
    const { file, argv, env, descriptors } = walls;
    const ran = spawnSync(file, argv.slice(1), {
      stdio: ["ignore", "ignore", "ignore", ...descriptors],
      timeout: PROBE_TIMEOUT_MS,
      env,
    });
    return ran.status === 0;
  } catch {
    // No place for an unnamed file, or /usr is a link: no sandbox.
    return false;
  } finally {
    if (directory !== null) closeSync(directory);
  }
}

/** A program that any user but root could change is passed over. */
function findProgram(name: string, places: readonly string[]): string | null {
  for (const directory of places) {
    const file = join(directory, name);
    try {
      accessSync(file, constants.X_OK);
      const { uid, mode } = statSync(file);
      if (uid === 0 && (mode & WRITABLE_BY_OTHERS) === 0) return file;
    } catch {
      // Not in this one.
    }
  }
  return null;
}

const WRITABLE_BY_OTHERS = 0o022;
