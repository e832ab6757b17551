/** This installation as files for another host. */

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { NATIVE_FILES, nativeFileCandidates, packageRoot } from "../../native/native-files.ts";

/** V8's compile cache for this CPU, and the unbundled copy of the CLI. */
const EXCLUDED = ["*.compiled", "./dist/compiled", "./dist/cli"];

/** The platform-specific files. */
export interface PlatformFiles {
  /** A directory with the addon and the programs; undefined for those of this installation. */
  native?: string | undefined;
  /** Path of a Node executable; null to use that of the host. */
  node: string | null;
}

/** A directory of links to all required files; removed on disposal. */
export class SelfPackage implements Disposable {
  readonly #directory: string;

  constructor({ native, node }: PlatformFiles) {
    const root = packageRoot();
    if (root === null || !existsSync(join(root, "dist", "bin", "procwire.cjs")))
      throw new Error("copy procwire: it has no bundle; run `npm run build`");
    this.#directory = mkdtempSync(join(tmpdir(), "procwire-copy-"));
    // Includes the sources of a clone: the launcher prefers them if they are newer than the bundle.
    for (const name of ["bin", "dist", "package.json", "LICENSE", "native/build.mjs", "src"])
      if (existsSync(join(root, name))) this.#link(join(root, name), name);
    for (const name of NATIVE_FILES) {
      const [file] = native === undefined ? nativeFileCandidates(name) : [join(native, name)];
      if (file !== undefined) this.#link(file, join("native", "build", name));
    }
    for (const [directory, name] of packagesOf(root)) this.#link(directory, name);
    if (node !== null) this.#link(node, join("node_modules", ".bin", "node"));
  }

  /** The command line of `tar`, which writes the archive to stdout. */
  get tarArgv(): string[] {
    return ["tar", "-chf", "-", "-C", this.#directory, ...EXCLUDED.map((name) => `--exclude=${name}`), "."];
  }

  get bytes(): number {
    return bytesBelow(this.#directory, ".");
  }

  #link(from: string, name: string): void {
    const to = join(this.#directory, name);
    mkdirSync(dirname(to), { recursive: true });
    symlinkSync(from, to);
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true });
  }
}

/** Maps the path of every direct and indirect dependency to its path in the copy. */
function packagesOf(root: string): Map<string, string> {
  const found = new Map<string, string>();
  const visit = (directory: string) => {
    const { dependencies = {} }: { dependencies?: Record<string, string> } = JSON.parse(
      readFileSync(join(directory, "package.json"), "utf8"),
    );
    for (const name of Object.keys(dependencies)) {
      const dependency = findPackage(directory, name);
      if (dependency === null) throw new Error(`copy procwire: ${name} is not installed; run \`npm install\``);
      if (found.has(dependency)) continue;
      found.set(dependency, pathInPackage(root, dependency));
      visit(dependency);
    }
  };
  visit(root);
  // A nested package is copied with its parent.
  const paths = [...found.keys()];
  for (const path of paths) if (paths.some((parent) => path.startsWith(`${parent}/`))) found.delete(path);
  return found;
}

function pathInPackage(root: string, path: string): string {
  if (path.startsWith(`${root}/`)) return relative(root, path);
  // A sibling of this package, as npm installs the dependencies of a project.
  return path.slice(path.indexOf("/node_modules/") + 1);
}

/** Resolves a package like Node. */
function findPackage(from: string, name: string): string | null {
  const path = join(from, "node_modules", name);
  if (existsSync(join(path, "package.json"))) return path;
  return dirname(from) === from ? null : findPackage(dirname(from), name);
}

function bytesBelow(directory: string, name: string): number {
  if (EXCLUDED.includes(name) || name.endsWith(".compiled")) return 0;
  const path = join(directory, name);
  const found = statSync(path);
  if (!found.isDirectory()) return found.size;
  return readdirSync(path).reduce((sum, entry) => sum + bytesBelow(directory, `${name}/${entry}`), 0);
}
