/** The declarations of this package, as `npm run build` emits them. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writePlainDeclarations } from "../../scripts/build/plain-declarations.ts";

export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Writes the declarations to `directory`/dist and the manifest to `directory`: the files that the compiler needs. */
export function emitTypes(directory: string): void {
  mkdirSync(directory, { recursive: true });
  copyFileSync(join(ROOT, "package.json"), join(directory, "package.json"));
  if (isBuildFresh()) {
    cpSync(join(ROOT, "dist"), join(directory, "dist"), {
      recursive: true,
      filter: (path) => path.endsWith(".d.ts") || statSync(path).isDirectory(),
    });
    return;
  }
  // `npm run check` checks the types, so emitting them is enough here.
  const options = ["--noCheck", "--emitDeclarationOnly", "--outDir", join(directory, "dist")];
  compile(["-p", join(ROOT, "tsconfig.build.json"), ...options]);
  writePlainDeclarations(join(directory, "dist"));
}

/** Reports whether no source is newer than the last build. */
function isBuildFresh(): boolean {
  const args = [join(ROOT, "src"), "-newer", join(ROOT, "dist/stamp"), "-print", "-quit"];
  const { status, stdout } = spawnSync("find", args, { encoding: "utf8" });
  return status === 0 && stdout === "";
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
