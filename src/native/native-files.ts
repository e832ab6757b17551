import { existsSync } from "node:fs";
import { dirname, join } from "node:path";

/** Names of the packages with this platform's addon and programs, one for each C library. */
const PLATFORM_PACKAGES = ["", "-musl"].map((libc) => `@procwire/${process.platform}-${process.arch}${libc}`);

/** What a platform's package has for procwire. */
export const NATIVE_FILES = ["procwire.node", "watchdog", "keeper"] as const;

/**
 * Where a native file can be, best first: what was built on this machine, then what the platform's package has. Both
 * packages of a platform may be there; the one for another C library does not load.
 */
export function* nativeFiles(name: string): Generator<string> {
  const root = packageRoot();
  if (root === null) return;
  const built = join(root, "native", "build", name);
  if (existsSync(built)) yield built;
  for (const folder of ancestors(root)) {
    for (const packageName of PLATFORM_PACKAGES) {
      const brought = join(folder, "node_modules", packageName, name);
      if (existsSync(brought)) yield brought;
    }
  }
}

/** Whether this is a clone of the repository: only a clone has the sources. */
export function isClone(): boolean {
  const root = packageRoot();
  return root !== null && existsSync(join(root, "src", "native", "addon.ts"));
}

export type FirstBuild = { type: "built"; path: string } | { type: "failed"; why: string };

/**
 * Compiles the addon where no file of it can be loaded and there is a compiler: takes a quarter of a minute, once for an
 * installation. A failure is remembered there, and not retried.
 */
export function buildAtFirstUse(): FirstBuild {
  const noPackage = `there is no package for it (${PLATFORM_PACKAGES.join(" or ")}; npm leaves it out with --omit=optional)`;
  const root = packageRoot();
  if (process.platform !== "linux" || root === null)
    return { type: "failed", why: `the addon is for Linux, and this is ${process.platform}` };
  const script = join(root, "native", "build.mjs");
  // Imported here, because nearly every program finds its addon and would load this module for nothing.
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const { status, stdout } = spawnSync(process.execPath, [script, "--first-use"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  const path = join(root, "native", "build", "procwire.node");
  if (status === 0 && existsSync(path)) return { type: "built", path };
  return { type: "failed", why: `${noPackage}, and it could not be compiled: ${stdout.trim() || script}` };
}

/** The folder of this package, from `src/native/` or from a bundle in `dist/`. */
export function packageRoot(): string | null {
  return (
    ancestors(import.meta.dirname).find((folder) => existsSync(join(folder, "native", "build.mjs"))) ?? null
  );
}

/** A folder and all above it, nearest first. */
function ancestors(folder: string): string[] {
  const parent = dirname(folder);
  return parent === folder ? [folder] : [folder, ...ancestors(parent)];
}
