/** Bundles the web console into `dist/web`; `npm run build` runs this. */
import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const source = (name: string) => new URL(`../../src/web/${name}`, import.meta.url).pathname;

// Removes the chunks of earlier builds, whose names contain their hashes.
rmSync("dist/web", { recursive: true, force: true });
mkdirSync("dist/web", { recursive: true });
await build({
  entryPoints: { console: source("console.tsx") },
  outdir: "dist/web",
  bundle: true,
  format: "esm",
  splitting: true,
  chunkNames: "[name]-[hash]",
  platform: "browser",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) copyFileSync(source(name), `dist/web/${name}`);
