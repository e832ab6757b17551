import { execFileSync } from "node:child_process";

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
