/** Packages that only one suite or script needs, in a directory with a separate manifest and lockfile. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

/** A directory, relative to the root of the repository, with its own package.json and package-lock.json. */
export interface OnDemand {
  directory: string;
  /** Name of the packages, for the progress line. */
  what: string;
}

/** Installs missing or outdated packages. Returns null on success, otherwise the reason of the failure. */
export function installOnDemand({ directory, what }: OnDemand): string | null {
  if (isInstalled(directory)) return null;
  process.stderr.write(`installing ${what} below ${directory}/\n`);
  const args = ["ci", "--prefix", directory];
  // The stdout of the caller holds its results only.
  const { status, signal, error } = spawnSync("npm", args, { stdio: ["ignore", process.stderr.fd, "inherit"] });
  if (status === 0) return null;
  const failure = error?.message ?? (signal ? `killed by ${signal}` : `exit code ${status}`);
  return `\`npm ci --prefix ${directory}\` failed (${failure}); it requires an npm registry with ${what}`;
}

/** Reports whether every package of the manifest is installed in its pinned version. */
function isInstalled(directory: string): boolean {
  const { dependencies }: { dependencies: Record<string, string> } = JSON.parse(
    readFileSync(`${directory}/package.json`, "utf8"),
  );
  return Object.entries(dependencies).every(([name, version]) => {
    const manifest = `${directory}/node_modules/${name}/package.json`;
    // Zig's own manifest names its build too (`0.12.0-dev.1286+cc394431a`).
    return existsSync(manifest) && JSON.parse(readFileSync(manifest, "utf8")).version.split("+")[0] === version;
  });
}
