/** This installation as files that run on another host. */

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { NATIVE_FILES, nativeFiles, packageRoot } from "../native/native-files.ts";

/** What V8 compiled for this machine's processor, and the CLI a second time, unbundled. */
const LEFT_OUT = ["*.compiled", "./dist/compiled", "./dist/cli"];

/** What differs from platform to platform. */
export interface PlatformParts {
  /** A folder with the addon and the programs; undefined: those that run here. */
  native?: string | undefined;
  /** A program; null: the host's own. */
  node: string | null;
}

/** A folder of links to all that is needed; gone with `using`. */
export class OwnCopy implements Disposable {
  readonly #folder: string;

  constructor({ native, node }: PlatformParts) {
    const root = packageRoot();
    if (root === null || !existsSync(join(root, "dist", "bin", "procwire.cjs")))
      throw new Error("this procwire has no bundle to copy; `npm run build` makes it");
    this.#folder = mkdtempSync(join(tmpdir(), "procwire-copy-"));
    // A clone's sources too: the launcher takes them where they are newer than the bundle, there as here.
    for (const name of ["bin", "dist", "package.json", "LICENSE", "native/build.mjs", "src"])
      if (existsSync(join(root, name))) this.#link(join(root, name), name);
    for (const name of NATIVE_FILES) {
      const [file] = native === undefined ? nativeFiles(name) : [join(native, name)];
      if (file !== undefined) this.#link(file, join("native", "build", name));
    }
    for (const [folder, name] of packagesOf(root)) this.#link(folder, name);
    if (node !== null) this.#link(node, join("node_modules", ".bin", "node"));
  }

  /** Words for `tar`, which writes it to its stdout. */
  get tarArgv(): string[] {
    return ["tar", "-chf", "-", "-C", this.#folder, ...LEFT_OUT.map((name) => `--exclude=${name}`), "."];
  }

  get bytes(): number {
    return bytesBelow(this.#folder, ".");
  }

  #link(from: string, name: string): void {
    const to = join(this.#folder, name);
    mkdirSync(dirname(to), { recursive: true });
    symlinkSync(from, to);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** The packages this one needs, and those they need: where each is, and where it belongs in a copy. */
function packagesOf(root: string): Map<string, string> {
  const found = new Map<string, string>();
  const visit = (folder: string) => {
    const { dependencies = {} }: { dependencies?: Record<string, string> } = JSON.parse(
      readFileSync(join(folder, "package.json"), "utf8"),
    );
    for (const name of Object.keys(dependencies)) {
      const place = findPackage(folder, name);
      if (place === null) throw new Error(`this installation lacks ${name}; \`npm install\` brings it`);
      if (found.has(place)) continue;
      found.set(place, placeInCopy(root, place));
      visit(place);
    }
  };
  visit(root);
  // One that lies within another is copied with it.
  const outer = [...found.keys()];
  for (const place of outer) if (outer.some((other) => place.startsWith(`${other}/`))) found.delete(place);
  return found;
}

function placeInCopy(root: string, place: string): string {
  if (place.startsWith(`${root}/`)) return relative(root, place);
  // Beside this package, as npm puts those of a project.
  return place.slice(place.indexOf("/node_modules/") + 1);
}

/** As Node looks for it. */
function findPackage(from: string, name: string): string | null {
  const place = join(from, "node_modules", name);
  if (existsSync(join(place, "package.json"))) return place;
  return dirname(from) === from ? null : findPackage(dirname(from), name);
}

function bytesBelow(folder: string, name: string): number {
  if (LEFT_OUT.includes(name) || name.endsWith(".compiled")) return 0;
  const path = join(folder, name);
  const found = statSync(path);
  if (!found.isDirectory()) return found.size;
  return readdirSync(path).reduce((sum, below) => sum + bytesBelow(folder, `${name}/${below}`), 0);
}
