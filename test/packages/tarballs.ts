import { execFileSync } from "node:child_process";

export interface PackedManifest {
  name: string;
  version: string;
  [field: string]: unknown;
}

/** Paths of all files in a package's tarball, from the package's folder, sorted. */
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
