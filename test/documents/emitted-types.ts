/** Emits the declarations of this package as `npm run build` does, so that tests never read stale ones. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Writes the declarations to `folder`/dist and the manifest to `folder`: the part of a package that types need. */
export function emitTypes(folder: string): void {
  // Whether they are right is what `npm run check` looks at.
  const options = ["--noCheck", "--emitDeclarationOnly", "--outDir", join(folder, "dist")];
  compile(["-p", join(ROOT, "tsconfig.build.json"), ...options]);
  copyFileSync(join(ROOT, "package.json"), join(folder, "package.json"));
}

/** Runs the compiler; throws its messages when it reports errors. */
export function compile(args: string[], cwd = ROOT): void {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  const { status, stdout } = spawnSync(process.execPath, [tsc, ...args], { cwd, encoding: "utf8" });
  assert.equal(status, 0, stdout);
}

/** Package entries by their name in the manifest, with the path of their declarations. */
export function entries(): { name: string; types: string }[] {
  const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
    exports: Record<string, string | { types?: string }>;
  };
  return Object.entries(exports).flatMap(([name, target]) =>
    typeof target === "object" && target.types ? [{ name, types: target.types }] : [],
  );
}
