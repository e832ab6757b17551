/** `npm run build`: the CLI as a bundle that starts fast, the library with its types, and the stamp that says of when they are. */
import { execFileSync } from "node:child_process";
import { existsSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { build } from "esbuild";
import { builtinPlugin } from "./builtin-plugin.ts";

const startedAt = new Date();
rmSync("dist", { recursive: true, force: true });

// Each command is a chunk of its own, and packages stay outside: nothing is loaded that the command does not need.
await build({
  entryPoints: ["src/cli/procwire.ts"],
  outdir: "dist/bin",
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node24",
  packages: "external",
  minify: true,
  plugins: [builtinPlugin()],
  logLevel: "warning",
});

execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json"], {
  stdio: "inherit",
});

if (existsSync("scripts/build-browser.ts")) {
  execFileSync(process.execPath, ["scripts/build-browser.ts"], { stdio: "inherit" });
}

// bin/procwire runs the bundle while no source is newer than this file; a source changed during the build is newer.
writeFileSync("dist/stamp", `${startedAt.toISOString()}\n`);
utimesSync("dist/stamp", startedAt, startedAt);
