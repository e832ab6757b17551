// How the addon and the programs are compiled, whatever the compiler: `build.mjs` does it with the system's compiler for
// this machine, `scripts/prebuild.ts` with zig for others.
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The C programs, each with its sources as paths from `native`. */
export const PROGRAMS = {
  watchdog: ["programs/watchdog.c", "programs/server-group.c"],
  keeper: [
    "programs/keeper.c",
    "programs/fds.c",
    "programs/keeper-children.c",
    "programs/kept-process.c",
    "programs/server-channel.c",
    "programs/server-life.c",
    "programs/service-manager.c",
  ],
};

/** The folders the addon is made of, besides this one. */
const ROOMS = ["core", "process", "wire"];

const here = dirname(fileURLToPath(import.meta.url));

/** The headers of Node-API, from npm. */
export const napiHeaders = () => createRequire(import.meta.url)("node-api-headers").include_dir;

/** Everything a build depends on, as paths from `native`. */
export function sourceFiles(native = here) {
  return ["", ...ROOMS, "programs"]
    .flatMap((folder) => readdirSync(join(native, folder)).map((name) => join(folder, name)))
    .filter((name) => /\.(cc|c|h|mjs)$/.test(name))
    .sort();
}

/** Flags of the addon's compilation for any GCC or clang; the sources are paths from `native`. */
export function addonFlags(native = here) {
  return [
    ...["-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"],
    // A worker's end unloads its addons; the threads that start programs go on.
    "-Wl,-z,nodelete",
    ...["-DNAPI_VERSION=8", `-I${napiHeaders()}`, "-I.", "-pthread"],
    ...sourceFiles(native).filter((name) => name.endsWith(".cc")),
  ];
}
