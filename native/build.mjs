// Builds the addon and the C programs for this host. Needs only a C and a C++ compiler: no node-gyp, no python, no
// make, no download. Skips the build if the outputs are current.
//
//   node native/build.mjs              build if needed; warn and succeed without a compiler
//   node native/build.mjs --in-clone   build only in a source checkout; `npm install` runs this, and installed packages
//                                      use the prebuilt addon of their platform
//   node native/build.mjs --first-use  build on demand if no prebuilt addon exists; never retry a failed build; print
//                                      the reason of a failure to stdout
//   node native/build.mjs --asan       build with AddressSanitizer and UndefinedBehaviorSanitizer into build/asan/,
//                                      for tests and the fuzzer
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { addonFlags, napiHeaders, PROGRAMS, sourceFiles } from "./recipe.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const asan = process.argv.includes("--asan");
const firstUse = process.argv.includes("--first-use");
const outDir = join(here, "build", ...(asan ? ["asan"] : []));
/** Written by a failed on-demand build, so that later ones do not retry. */
const failedFile = join(here, "build", "failed");
/** Only a source checkout contains the TypeScript sources. */
const isClone = existsSync(join(here, "..", "src", "native", "addon.ts"));
const cxx = process.env.CXX ?? "c++";
const cc = process.env.CC ?? "cc";

if (process.argv.includes("--in-clone") && !isClone) process.exit(0);
if (firstUse) {
  const reason = onDemandUnavailableReason();
  if (reason !== null) {
    console.log(reason);
    process.exit(1);
  }
  console.error("procwire: compiling the native addon once; this may take a minute");
}

if (process.platform !== "linux") {
  warn(`native addon not supported on ${process.platform}; pipes use node:child_process, terminals are unavailable`);
} else {
  try {
    build();
    rmSync(failedFile, { force: true });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    if (firstUse) {
      console.log(reason);
      writeFileSync(failedFile, `${reason}\n`);
    } else warn(`cannot build native addon: ${reason}`);
    if (asan || firstUse) process.exitCode = 1;
  }
}

function build() {
  const stamp = computeStamp();
  const stampFile = join(outDir, "stamp");
  const addonFile = join(outDir, "procwire.node");
  const outputs = [addonFile, ...Object.keys(PROGRAMS).map((name) => join(outDir, name))];
  if (outputs.every(existsSync) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return;

  mkdirSync(outDir, { recursive: true });
  rmSync(stampFile, { force: true });
  // Warnings are errors only in test builds, because a user's compiler may have additional warnings.
  const common = ["-Wall", "-Wextra", ...(asan ? ["-O1", "-Werror"] : ["-O2"])];
  const debugging = ["-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=vptr"];
  const addon = [...common, ...(asan ? debugging : ["-s"]), ...addonFlags()];
  // Links statically if possible, so that the addon survives an upgrade of the compiler.
  compile(cxx, addonFile, addon, asan ? [[]] : [["-static-libstdc++", "-static-libgcc"], []]);
  for (const [name, sources] of Object.entries(PROGRAMS))
    compile(
      cc,
      join(outDir, name),
      [...common, ...(asan ? debugging.slice(0, 3) : ["-s"]), ...sources],
      asan ? [[]] : [["-static"], []],
    );
  writeFileSync(stampFile, stamp);
  if (!firstUse) console.log(`procwire: built ${outputs.map((path) => path.slice(here.length + 1)).join(", ")}`);
}

/** Tries each set of extra flags in turn. Prints the compiler output of the attempt that succeeded, or of the last one. */
function compile(compiler, output, flags, variants) {
  const temporary = `${output}.${process.pid}.tmp`;
  for (const [index, extra] of variants.entries()) {
    const ran = spawnSync(compiler, [...flags, ...extra, "-o", temporary], { encoding: "utf8", cwd: here });
    if (ran.error)
      throw new Error(
        `compiler \`${compiler}\` not found; install one (for example g++) and run \`node ${join(here, "build.mjs")}\``,
      );
    const last = index === variants.length - 1;
    if (ran.status === 0 || last) process.stderr.write(ran.stderr);
    if (ran.status === 0) {
      // Atomic: a process that has loaded the old file keeps it.
      renameSync(temporary, output);
      return;
    }
    rmSync(temporary, { force: true });
    if (last) throw new Error(`\`${compiler}\` failed for ${output.slice(here.length + 1)}`);
  }
}

/** Returns a hash of the sources, this script, the compilers and the platform. */
function computeStamp() {
  const hash = createHash("sha256");
  for (const name of sourceFiles()) hash.update(name).update(readFileSync(join(here, name)));
  hash.update([cxx, cc, napiHeaders().split("/").at(-1), process.platform, process.arch, String(asan)].join("\n"));
  return hash.digest("hex");
}

/** Returns null if an on-demand build may run, else the reason and the remedy. */
function onDemandUnavailableReason() {
  const remedy = `run \`node ${join(here, "build.mjs")}\``;
  if (process.platform !== "linux") return `native addon not supported on ${process.platform}`;
  if (existsSync(failedFile)) return `${readFileSync(failedFile, "utf8").trim()}; after fixing the cause, ${remedy}`;
  const missing = [cxx, cc].find((compiler) => spawnSync(compiler, ["--version"]).error);
  if (missing !== undefined)
    return `compiler \`${missing}\` not found; install one (for example g++) and start again, or ${remedy}`;
  try {
    mkdirSync(join(here, "build"), { recursive: true });
    accessSync(join(here, "build"), constants.W_OK);
    return null;
  } catch {
    return `${join(here, "build")} is not writable; as its owner, ${remedy}`;
  }
}

function warn(message) {
  const line = "=".repeat(100);
  console.warn(
    `${line}\nprocwire: WARNING: ${message}\nprocwire: pipes use node:child_process, terminals are unavailable\n${line}`,
  );
}
