// Builds what is native here: the addon and the watchdog. Needs a C++ compiler and nothing else: no node-gyp, no python, no
// make, no download. Run by `npm install`; does nothing when the result is already there and current.
//
//   node native/build.mjs            build if needed; without a compiler say so and succeed
//   node native/build.mjs --asan     build the addon with AddressSanitizer and UndefinedBehaviorSanitizer into build/asan/,
//                                    for the test and the fuzzer that use it
//
// A prebuild in prebuilds/<platform>-<arch>/ is used as it is.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const asan = process.argv.includes("--asan");
const outDir = join(here, "build", ...(asan ? ["asan"] : []));
const prebuilt = join(here, "prebuilds", `${process.platform}-${process.arch}`, "procwire.node");
/** The folders the addon is made of, besides this one. */
const ROOMS = ["core", "process", "wire"];
const cxx = process.env.CXX ?? "c++";
const cc = process.env.CC ?? "cc";

if (process.platform !== "linux") {
  warn(`the native addon is for Linux; on ${process.platform} pipes work through Node and terminals do not`);
} else if (!asan && existsSync(prebuilt)) {
  console.log(`procwire: using the prebuilt addon for ${process.platform}-${process.arch}`);
} else {
  try {
    build();
  } catch (error) {
    warn(`the native addon could not be built: ${error instanceof Error ? error.message : error}`);
    if (asan) process.exitCode = 1;
  }
}

function build() {
  const sources = sourceFiles().filter((name) => name.endsWith(".cc"));
  const includeDir = createRequire(import.meta.url)("node-api-headers").include_dir;
  const stamp = stampOf(includeDir);
  const stampFile = join(outDir, "stamp");
  const addonFile = join(outDir, "procwire.node");
  const programs = { watchdog: ["watchdog.c", "server-group.c"] };
  const outputs = [addonFile, ...Object.keys(programs).map((name) => join(outDir, name))];
  if (outputs.every(existsSync) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return;

  mkdirSync(outDir, { recursive: true });
  rmSync(stampFile, { force: true });
  // Where tests build, a warning is an error; where users do, their compiler may know warnings ours does not.
  const common = ["-Wall", "-Wextra", ...(asan ? ["-O1", "-Werror"] : ["-O2"])];
  const addon = [
    ...["-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"],
    // A worker's end unloads its addons; the threads that start programs go on.
    "-Wl,-z,nodelete",
    ...["-DNAPI_VERSION=8", `-I${includeDir}`, `-I${here}`, "-pthread"],
    ...(asan
      ? ["-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=vptr"]
      : ["-s"]),
    ...sources.map((name) => join(here, name)),
  ];
  // Self-contained where the static library is at hand, so that a prebuild runs on other machines.
  compile(cxx, addonFile, [...common, ...addon], asan ? [[]] : [["-static-libstdc++", "-static-libgcc"], []]);
  for (const [name, parts] of Object.entries(programs))
    compile(
      cc,
      join(outDir, name),
      [...common, "-s", ...parts.map((part) => join(here, "programs", part))],
      [["-static"], []],
    );
  writeFileSync(stampFile, stamp);
  console.log(`procwire: built ${outputs.map((path) => path.slice(here.length + 1)).join(", ")}`);
}

/** Tries each set of extra flags in turn. Shows what the compiler said when it succeeded, or failed for good. */
function compile(compiler, output, flags, variants) {
  const unfinished = `${output}.${process.pid}.tmp`;
  for (const [index, extra] of variants.entries()) {
    const ran = spawnSync(compiler, [...flags, ...extra, "-o", unfinished], { encoding: "utf8" });
    if (ran.error)
      throw new Error(`no compiler \`${compiler}\`; install one (for example g++) and run \`npm rebuild\``);
    const last = index === variants.length - 1;
    if (ran.status === 0 || last) process.stderr.write(ran.stderr);
    if (ran.status === 0) {
      // In one step: whoever has the old file loaded keeps it.
      renameSync(unfinished, output);
      return;
    }
    rmSync(unfinished, { force: true });
    if (last) throw new Error(`\`${compiler}\` failed for ${output.slice(here.length + 1)}`);
  }
}

/** Everything a build depends on, as paths from here. */
function sourceFiles() {
  return ["", ...ROOMS, "programs"]
    .flatMap((folder) => readdirSync(join(here, folder)).map((name) => join(folder, name)))
    .filter((name) => /\.(cc|c|h|mjs)$/.test(name))
    .sort();
}

/** Changes when a source, this script, a compiler or the platform does. */
function stampOf(includeDir) {
  const hash = createHash("sha256");
  for (const name of sourceFiles()) hash.update(name).update(readFileSync(join(here, name)));
  hash.update(
    [cxx, cc, includeDir.split("/").at(-1), process.platform, process.arch, String(asan)].join("\n"),
  );
  return hash.digest("hex");
}

function warn(message) {
  const line = "=".repeat(100);
  console.warn(
    `${line}\nprocwire: WARNING: ${message}\nprocwire: pipes fall back to node:child_process; terminals are refused\n${line}`,
  );
}
