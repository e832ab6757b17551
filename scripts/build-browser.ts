/** The client for browsers as a module, with nothing of Node in it; `npm run build` runs this. */
import { type BuildOptions, build } from "esbuild";

/** Bundles into `outdir`, as `client.js` and what that loads later. Fails when anything of Node is asked for. */
export const browserBuild = (outdir: string) =>
  ({
    entryPoints: { client: new URL("../src/client/browser.ts", import.meta.url).pathname },
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
