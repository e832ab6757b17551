import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { VERSION } from "../version.ts";

/** Packages with the native files of this platform, one per C library. */
const PLATFORM_PACKAGES = ["", "-musl"].map((libc) => `@procwire/${process.platform}-${process.arch}${libc}`);

/** Files of a platform package. */
export const NATIVE_FILES = ["procwire.node", "watchdog", "supervisor", "sandbox-listeners"] as const;

/**
 * Yields the existing paths of a native file, best first: built on this host, then from a platform package. Both
 * packages of a platform may be installed; the one for another C library fails to load.
 */
export function* nativeFileCandidates(name: string): Generator<string> {
  const root = packageRoot();
  const built = root === null ? null : join(root, "native", "build", name);
  if (built !== null && existsSync(built)) yield built;
  for (const directory of ancestors(import.meta.dirname)) {
    for (const packageName of PLATFORM_PACKAGES) {
      const packaged = join(directory, "node_modules", packageName, name);
      if (existsSync(packaged)) yield packaged;
    }
  }
}

/** Reports whether this is a source checkout. Packages contain no sources. */
export function isSourceCheckout(): boolean {
  const root = packageRoot();
  return root !== null && existsSync(join(root, "src", "native", "addon.ts"));
}

export type CompileResult = { type: "built"; path: string } | { type: "failed"; why: string };

/**
 * Compiles the addon if no file of it can be loaded and a compiler exists. Takes about 15 seconds, once per installation.
 * A failure is recorded in the installation and not retried.
 */
export function compileOnDemand(): CompileResult {
  const noPackage = `there is no package for it (${PLATFORM_PACKAGES.join(" or ")}; npm leaves it out with --omit=optional)`;
  const root = packageRoot();
  if (process.platform !== "linux") return { type: "failed", why: `native addon not supported on ${process.platform}` };
  // `procwire-client` contains no native sources.
  if (root === null) return { type: "failed", why: `${noPackage}; install the package \`procwire\` to compile it` };
  const script = join(root, "native", "build.mjs");
  // Loaded on demand, because most installations find their addon.
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const { status, stdout } = spawnSync(process.execPath, [script, "--first-use"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  const path = join(root, "native", "build", "procwire.node");
  if (status === 0 && existsSync(path)) return { type: "built", path };
  return { type: "failed", why: `${noPackage}, and it could not be compiled: ${stdout.trim() || script}` };
}

/**
 * Returns the directory of `procwire`, from `src/native/`, from a bundle in `dist/`, or from the package
 * `procwire-client` next to it; null if `procwire-client` is installed alone.
 */
export function packageRoot(): string | null {
  const hasNativeSources = (directory: string) => existsSync(join(directory, "native", "build.mjs"));
  const directories = ancestors(import.meta.dirname);
  return (
    directories.find(hasNativeSources) ??
    directories
      .map((directory) => join(directory, "node_modules", "procwire"))
      .find((directory) => hasNativeSources(directory) && versionIn(directory) === VERSION) ??
    null
  );
}

function versionIn(directory: string): unknown {
  return JSON.parse(readFileSync(join(directory, "package.json"), "utf8")).version;
}

/** Returns a directory and its ancestors, nearest first. */
function ancestors(directory: string): string[] {
  const parent = dirname(directory);
  return parent === directory ? [directory] : [directory, ...ancestors(parent)];
}
