/** `npm run build`: the bundles of the CLI, the library with its types, and the stamp with the time of the build. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { build, type Plugin } from "esbuild";
import { writePlainDeclarations } from "./plain-declarations.ts";

const startedAt = new Date();
rmSync("dist", { recursive: true, force: true });

/** Modules of the commands, as `main.ts` imports them. */
const commands = Array.from(
  readFileSync("src/cli/main.ts", "utf8").matchAll(/import\("\.\/(commands\/[\w/-]+\.ts)"\)/g),
  ([, path]) => `src/cli/${path}`,
);

/** Each command is a separate bundle: `main` requires it by its built name. */
const commandsApart: Plugin = {
  name: "commands-apart",
  setup(build) {
    build.onResolve({ filter: /^\.\/commands\/[\w/-]+\.ts$/ }, ({ path, kind, importer }) =>
      kind === "dynamic-import" && basename(importer) === "main.ts"
        ? { path: `./${basename(path, ".ts")}.cjs`, external: true }
        : undefined,
    );
  },
};

// CommonJS instead of ES modules, for a faster start (decision 5). Packages stay external; a command loads those it needs.
const { metafile } = await build({
  metafile: true,
  entryPoints: ["src/cli/procwire.ts", "src/cli/jobs-reader-main.ts", ...commands],
  outdir: "dist/bin",
  entryNames: "[name]",
  outExtension: { ".js": ".cjs" },
  bundle: true,
  format: "cjs",
  platform: "node",
  target: "node24",
  packages: "external",
  minify: true,
  supported: { "dynamic-import": false },
  define: { "import.meta.dirname": "__dirname" },
  plugins: [commandsApart],
  logLevel: "warning",
});

// The sources of each bundle, for `bin/main.cjs`.
for (const [bundle, { inputs }] of Object.entries(metafile.outputs)) {
  writeFileSync(`${bundle}.sources`, Object.keys(inputs).join("\n"));
}

const runScript = (...args: string[]) =>
  execFileSync(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
runScript("node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json");
writePlainDeclarations("dist");
writePlainArrays();
runScript("scripts/build/build-browser.ts");
runScript("scripts/build/build-web.ts");

// The build stores V8's code cache of each command next to its bundle for later runs. Each run adds the functions it calls.
for (const command of commands) {
  const name = basename(command, ".ts");
  if (name !== "serve") await run(name, "--help");
}
await run("run", "--", "true");
await serveOnce();
await useServer();

// bin/main.cjs runs a bundle while none of its sources is newer than this file. A source changed during the build is newer.
writeFileSync("dist/stamp", `${startedAt.toISOString()}\n`);
utimesSync("dist/stamp", startedAt, startedAt);

/**
 * Replaces `Uint8Array<ArrayBufferLike>` by `Uint8Array` in the declarations, because the type is not generic before
 * TypeScript 5.7.
 */
function writePlainArrays(): void {
  for (const path of globSync("dist/**/*.d.ts")) {
    const declarations = readFileSync(path, "utf8");
    const plain = declarations.replaceAll("Uint8Array<ArrayBufferLike>", "Uint8Array");
    if (plain !== declarations) writeFileSync(path, plain);
  }
}

/** Runs a complete handshake, so that the code cache contains the functions of a handshake. */
async function serveOnce(): Promise<void> {
  const server = start("serve", "--listen", "ws://127.0.0.1:0");
  const [url] = await once(createInterface({ input: server.stdout }), "line");
  const socket = new WebSocket(url);
  await once(socket, "open");
  socket.send('{"id":1,"method":"initialize","params":{"clientName":"build"}}');
  await once(socket, "message");
  socket.close();
  server.kill();
  await waitForExit(server);
}

/** Uses a server with the most frequent commands. The server itself stores no code cache. */
async function useServer(): Promise<void> {
  const server = spawn(process.execPath, [
    "bin/main.cjs",
    "dist/bin/procwire.cjs",
    "serve",
    "--listen",
    "ws://127.0.0.1:0",
  ]);
  const [url] = await once(createInterface({ input: server.stdout }), "line");
  await run("run", "--connect", url, "--", "true");
  await run("run", "--detach", "--name", "build", "--connect", url, "--", "sleep", "60");
  await run("ps", "--connect", url);
  await run("logs", "--connect", url, "build");
  await run("kill", "--connect", url, "build");
  await run("wait", "--connect", url, "build").catch(() => undefined);
  server.kill();
  await once(server, "exit");
}

async function run(...args: string[]): Promise<void> {
  await waitForExit(start(...args));
}

function start(...args: string[]) {
  return spawn(process.execPath, ["bin/main.cjs", "dist/bin/procwire.cjs", ...args], {
    env: { ...process.env, PROCWIRE_KEEP_COMPILED: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

async function waitForExit(child: ReturnType<typeof start>): Promise<void> {
  child.stdout.resume();
  const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
  if (code !== 0) throw new Error(`${child.spawnargs.join(" ")} exited with ${code}: ${stderr}`);
}
