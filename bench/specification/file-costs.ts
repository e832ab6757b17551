import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { PROCWIRE, serve } from "../../test/support/servers/serve.ts";
import type { Costs } from "./specification.ts";

const ROOT = join(import.meta.dirname, "../..");
const LIST_MODULES = join(import.meta.dirname, "list-modules.cjs");

/** Modules that the commands load beyond those of an empty Node script, and bytes of the console's page. */
export async function fileCosts(): Promise<Costs> {
  await using server = await serve();
  const connect = ["--connect", server.url];
  const { printed: handle } = runCounted(["run", "--detach", ...connect, "--", "sleep", "600"]);
  const commands = {
    "run -- true": ["run", "--", "true"],
    "run --connect URL -- true": ["run", ...connect, "--", "true"],
    "ps --connect URL": ["ps", ...connect],
    "logs --connect URL HANDLE": ["logs", ...connect, handle],
    "kill --connect URL HANDLE": ["kill", ...connect, handle],
    "--version": ["--version"],
  };
  const empty = runCounted(["-e", ""], process.execPath).modules;
  const modules = Object.entries(commands).map(([name, args]) => [
    `modules of Node that \`procwire ${name}\` loads`,
    runCounted(args).modules - empty,
  ]);
  return { ...Object.fromEntries(modules), ...pageCosts() };
}

function runCounted(args: string[], program = PROCWIRE): { printed: string; modules: number } {
  const directory = mkdtempSync(join(tmpdir(), "procwire-modules-"));
  try {
    const file = join(directory, "modules");
    const env = { ...process.env, NODE_OPTIONS: `--require ${LIST_MODULES}`, PROCWIRE_MODULES_FILE: file };
    const ran = spawnSync(program, args, { env, stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });
    if (ran.status !== 0) throw new Error(`${program} ${args.join(" ")} exited with ${ran.status}: ${ran.stderr}`);
    const modules = readFileSync(file, "utf8").split("\n");
    // The sources are ES modules; the bundles are scripts.
    if (modules.includes("NativeModule internal/modules/esm/initialize_import_meta"))
      throw new Error("bin/procwire runs the sources, which are newer than dist; run `npm run build`");
    return { printed: ran.stdout.trim(), modules: modules.length };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Sizes with gzip, as the server sends them. */
function pageCosts(): Costs {
  const directory = join(ROOT, "dist/web");
  const size = (name: string) => gzipSync(readFileSync(join(directory, name))).length;
  const names = readdirSync(directory);
  const first = names.filter((name) => /^(?:index|console)\./.test(name));
  return {
    "bytes of the console's first page, compressed": first.reduce((sum, name) => sum + size(name), 0),
    "bytes of all files of the console, compressed": names.reduce((sum, name) => sum + size(name), 0),
  };
}
