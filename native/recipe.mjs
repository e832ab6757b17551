// Sources and compiler flags of the addon and the C programs. `build.mjs` compiles them with the system compiler for this
// host, `scripts/build/prebuild.ts` with zig for other platforms.
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The C programs with their sources, as paths relative to `native`. */
export const PROGRAMS = {
  watchdog: ["programs/watchdog.c", "programs/sentinel.c", "programs/server-cgroup.c", "programs/sd-notify.c"],
  supervisor: [
    "programs/supervisor.c",
    "programs/epoll-watch.c",
    "programs/supervisor-orphans.c",
    "programs/persistent-process.c",
    "programs/server-channel.c",
    "programs/server-lifecycle.c",
    "programs/service-state.c",
    "programs/supervisor-state.c",
    "programs/supervisor-upgrade.c",
  ],
  "sandbox-listeners": ["programs/landlock-domain.c", "programs/sandbox-listeners.c"],
};

/** Source directories of the addon, besides `native` itself. */
const ADDON_DIRECTORIES = ["core", "process", "net", "files"];

const here = dirname(fileURLToPath(import.meta.url));

/** Include directory of the Node-API headers from npm. */
export const napiHeaders = () => createRequire(import.meta.url)("node-api-headers").include_dir;

/** Returns all files that a build depends on, as paths relative to `native`. */
export function sourceFiles(native = here) {
  return ["", ...ADDON_DIRECTORIES, "programs"]
    .flatMap((directory) => readdirSync(join(native, directory)).map((name) => join(directory, name)))
    .filter((name) => /\.(cc|c|h|mjs)$/.test(name))
    .sort();
}

/** Returns the compiler arguments of the addon for GCC and clang. Sources are relative to `native`. */
export function addonFlags(native = here) {
  return [
    ...["-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"],
    // Ending a worker unloads its addons, but the spawner threads keep running.
    "-Wl,-z,nodelete",
    ...["-DNAPI_VERSION=10", `-I${napiHeaders()}`, "-I.", "-pthread"],
    ...sourceFiles(native).filter((name) => name.endsWith(".cc")),
  ];
}
