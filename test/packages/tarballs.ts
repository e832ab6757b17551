import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface PackedManifest {
  name: string;
  version: string;
  [field: string]: unknown;
}

/** Returns the paths of all files in a package's tarball, relative to the package's directory, sorted. */
export function filesIn(path: string): string[] {
  return execFileSync("tar", ["-tzf", path], { encoding: "utf8" })
    .trimEnd()
    .split("\n")
    .map((name) => name.replace(/^package\//, ""))
    .sort();
}

export function manifestIn(path: string): PackedManifest {
  return JSON.parse(execFileSync("tar", ["-xzOf", path, "package/package.json"], { encoding: "utf8" }));
}

/** Extracts a package's tarball. `path` is the package's directory; disposal removes it. */
export function extract(tarball: string): Disposable & { path: string } {
  const directory = mkdtempSync(join(tmpdir(), "procwire-extracted-"));
  execFileSync("tar", ["-xzf", tarball, "-C", directory]);
  return {
    path: join(directory, "package"),
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }),
  };
}
