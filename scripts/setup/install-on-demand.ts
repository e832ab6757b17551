/** Packages that only one suite or script needs, in a directory with a separate manifest and lockfile. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

/** A directory, relative to the root of the repository, with its own package.json and package-lock.json. */
export interface OnDemand {
  folder: string;
  /** Name of the packages, for the progress line. */
  what: string;
}

/** Installs missing or outdated packages. Returns null on success, else the reason of the failure. */
export function installOnDemand({ folder, what }: OnDemand): string | null {
  if (isInstalled(folder)) return null;
  process.stderr.write(`installing ${what} below ${folder}/\n`);
  const args = ["ci", "--prefix", folder];
  const { status, signal, error } = spawnSync("npm", args, { stdio: ["ignore", "inherit", "inherit"] });
  if (status === 0) return null;
  const how = error?.message ?? (signal ? `it was ended by ${signal}` : `it exited with ${status}`);
  return `\`npm ci --prefix ${folder}\` failed (${how}); it needs an npm registry that has ${what}`;
}

/** Reports whether every package of the manifest is installed in its pinned version. */
function isInstalled(folder: string): boolean {
  const { dependencies }: { dependencies: Record<string, string> } = JSON.parse(
    readFileSync(`${folder}/package.json`, "utf8"),
  );
  return Object.entries(dependencies).every(([name, wanted]) => {
    const manifest = `${folder}/node_modules/${name}/package.json`;
    // Zig's own manifest names its build too (`0.12.0-dev.1286+cc394431a`).
    return (
      existsSync(manifest) && JSON.parse(readFileSync(manifest, "utf8")).version.split("+")[0] === wanted
    );
  });
}
