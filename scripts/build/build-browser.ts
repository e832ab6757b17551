/** Builds the browser client as a module without any Node module; `npm run build` runs this. */
import { type BuildOptions, build } from "esbuild";

/** Bundles into `outdir`: `client.js` and the chunks that it loads later. Fails if any module imports a Node module. */
export const browserBuild = (outdir: string) =>
  ({
    entryPoints: { client: new URL("../../src/client/browser.ts", import.meta.url).pathname },
    outdir,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    minify: true,
    sourcemap: true,
    metafile: true,
    logLevel: "warning",
  }) as const satisfies BuildOptions;

if (import.meta.main) await build(browserBuild("dist/browser"));
