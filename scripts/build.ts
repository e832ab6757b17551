/** `npm run build`: the CLI as bundles that start fast, the library with its types, and the stamp that says of when they are. */
import { execFileSync } from "node:child_process";
import { globSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { build, type Plugin } from "esbuild";

const startedAt = new Date();
rmSync("dist", { recursive: true, force: true });

const commands = globSync("src/cli/*.ts").filter((path) =>
  /export const command:/.test(readFileSync(path, "utf8")),
);

/** A command's file is a bundle of its own: `main` requires it by its built name. */
const commandsApart: Plugin = {
  name: "commands-apart",
  setup(build) {
    build.onResolve({ filter: /^\.\/[\w-]+\.ts$/ }, ({ path, kind, importer }) =>
      kind === "dynamic-import" && basename(importer) === "main.ts"
        ? { path: path.replace(/\.ts$/, ".cjs"), external: true }
        : undefined,
    );
  },
};

// Scripts rather than modules: a module would be resolved, read and linked chunk by chunk, and an import of node:http
// reads every export of it, one of which loads a whole HTTP library. Packages stay outside, loaded by whoever needs them.
await build({
  entryPoints: ["src/cli/procwire.ts", ...commands],
  outdir: "dist/bin",
  outExtension: { ".js": ".cjs" },
  bundle: true,
  format: "cjs",
  platform: "node",
  target: "node24",
  packages: "external",
  minify: true,
  supported: { "dynamic-import": false },
  define: { "import.meta.url": "importMetaUrl" },
  banner: { js: 'const importMetaUrl = require("node:url").pathToFileURL(__filename).href;' },
  plugins: [commandsApart],
  logLevel: "warning",
});

const run = (...args: string[]) =>
  execFileSync(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
run("node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json");
run("scripts/build-browser.ts");

// The first run of each command leaves its compiled form behind for all later ones.
for (const command of commands)
  run("bin/main.cjs", resolve("dist/bin/procwire.cjs"), basename(command, ".ts"), "--help");
serveOnce();

// bin/procwire runs the bundle while no source is newer than this file; a source changed during the build is newer.
writeFileSync("dist/stamp", `${startedAt.toISOString()}\n`);
utimesSync("dist/stamp", startedAt, startedAt);

/** A whole handshake, so that what it compiles is kept too. */
function serveOnce(): void {
  const input = '{"id":1,"method":"initialize","params":{"clientName":"build"}}\n';
  execFileSync(process.execPath, ["bin/main.cjs", resolve("dist/bin/procwire.cjs"), "serve"], {
    input,
    stdio: "pipe",
  });
}
