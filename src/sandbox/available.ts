import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import type { SandboxPrograms } from "./bubblewrap.ts";
import { bubblewrapArgv } from "./bubblewrap.ts";

/** The name under which a host tells that it has bubblewrap. */
export const BUBBLEWRAP = "bubblewrap";

/** A healthy probe takes some 10 ms. */
const PROBE_TIMEOUT_MS = 5000;

let found: { programs: SandboxPrograms | null } | null = null;

/**
 * Which sandboxes this host really has. Bubblewrap being installed is not enough, since user namespaces may be
 * blocked: so it is run once, with the walls that would be used, and the answer is remembered.
 */
export function availableSandboxes(): string[] {
  return sandboxPrograms() ? [BUBBLEWRAP] : [];
}

/** The programs by their full path, which does not depend on the PATH of what is started; null without a sandbox. */
export function sandboxPrograms(): SandboxPrograms | null {
  found ??= { programs: probe(process.env.PATH ?? "") };
  return found.programs;
}

/** The probe itself, for a given PATH. */
export function probe(path: string): SandboxPrograms | null {
  if (process.platform !== "linux") return null;
  const env = findProgram("env", path);
  const bwrap = findProgram("bwrap", path);
  if (env === null || bwrap === null) return null;
  const programs = { env, bwrap };
  const [file = "", ...args] = bubblewrapArgv(
    {
      roots: [{ path: "/", access: "read" }],
      cwd: "/",
      network: false,
      tmp: "private",
      devices: "minimal",
    },
    ["true"],
    programs,
  );
  const ran = spawnSync(file, args, { stdio: "ignore", timeout: PROBE_TIMEOUT_MS, env: { PATH: path } });
  return ran.status === 0 ? programs : null;
}

function findProgram(name: string, path: string): string | null {
  for (const directory of path.split(delimiter)) {
    if (directory === "") continue;
    const file = join(directory, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // Not in this one.
    }
  }
  return null;
}
