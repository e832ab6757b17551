// Builds what is native here for this machine: the addon and the watchdog. Needs a C++ compiler and nothing else: no
// node-gyp, no python, no make, no download. Does nothing when the result is already there and current.
//
//   node native/build.mjs              build if needed; without a compiler say so and succeed
//   node native/build.mjs --in-clone   the same, but only in a clone: `npm install` runs this, and an installed package
//                                      takes the prebuilt addon of its platform
//   node native/build.mjs --first-use  where there is no prebuilt addon: build if there is a compiler, and not again after
//                                      one has failed; prints why not, for the program that runs this
//   node native/build.mjs --asan       build the addon and the programs with AddressSanitizer and UndefinedBehaviorSanitizer into
//                                      build/asan/, for the test and the fuzzer that use it
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { addonFlags, napiHeaders, PROGRAMS, sourceFiles } from "./recipe.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const asan = process.argv.includes("--asan");
const firstUse = process.argv.includes("--first-use");
const outDir = join(here, "build", ...(asan ? ["asan"] : []));
/** Left by a first use whose compilation failed, so that the next one does not try it again. */
const failedFile = join(here, "build", "failed");
/** Only a clone has the sources; packages are made without them. */
const isClone = existsSync(join(here, "..", "src", "native", "addon.ts"));
const cxx = process.env.CXX ?? "c++";
const cc = process.env.CC ?? "cc";

if (process.argv.includes("--in-clone") && !isClone) process.exit(0);
if (firstUse) {
  const hindrance = whyNotNow();
  if (hindrance !== null) {
    console.log(hindrance);
    process.exit(1);
  }
  console.error("procwire: compiling the native addon, once; this takes a while");
}

if (process.platform !== "linux") {
  warn(`the native addon is for Linux; on ${process.platform} pipes work through Node and terminals do not`);
} else {
  try {
    build();
    rmSync(failedFile, { force: true });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    if (firstUse) {
      console.log(reason);
      writeFileSync(failedFile, `${reason}\n`);
    } else warn(`the native addon could not be built: ${reason}`);
    if (asan || firstUse) process.exitCode = 1;
  }
}

function build() {
  const stamp = stampOf();
  const stampFile = join(outDir, "stamp");
  const addonFile = join(outDir, "procwire.node");
  const outputs = [addonFile, ...Object.keys(PROGRAMS).map((name) => join(outDir, name))];
  if (outputs.every(existsSync) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return;

  mkdirSync(outDir, { recursive: true });
  rmSync(stampFile, { force: true });
  // Where tests build, a warning is an error; where users do, their compiler may know warnings ours does not.
  const common = ["-Wall", "-Wextra", ...(asan ? ["-O1", "-Werror"] : ["-O2"])];
  const debugging = ["-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=vptr"];
  const addon = [...common, ...(asan ? debugging : ["-s"]), ...addonFlags()];
  // Self-contained where the static library is at hand, so that it outlives an upgrade of the compiler.
  compile(cxx, addonFile, addon, asan ? [[]] : [["-static-libstdc++", "-static-libgcc"], []]);
  for (const [name, sources] of Object.entries(PROGRAMS))
    compile(
      cc,
      join(outDir, name),
      [...common, ...(asan ? debugging.slice(0, 3) : ["-s"]), ...sources],
      asan ? [[]] : [["-static"], []],
    );
  writeFileSync(stampFile, stamp);
  if (!firstUse)
    console.log(`procwire: built ${outputs.map((path) => path.slice(here.length + 1)).join(", ")}`);
}

/** Tries each set of extra flags in turn. Shows what the compiler said when it succeeded, or failed for good. */
function compile(compiler, output, flags, variants) {
  const unfinished = `${output}.${process.pid}.tmp`;
  for (const [index, extra] of variants.entries()) {
    const ran = spawnSync(compiler, [...flags, ...extra, "-o", unfinished], { encoding: "utf8", cwd: here });
    if (ran.error)
      throw new Error(
        `no compiler \`${compiler}\`; install one (for example g++) and run \`node ${join(here, "build.mjs")}\``,
      );
    const last = index === variants.length - 1;
    if (ran.status === 0 || last) process.stderr.write(ran.stderr);
    if (ran.status === 0) {
      // In one step: a program that has the old file loaded keeps it.
      renameSync(unfinished, output);
      return;
    }
    rmSync(unfinished, { force: true });
    if (last) throw new Error(`\`${compiler}\` failed for ${output.slice(here.length + 1)}`);
  }
}

/** Changes when a source, this script, a compiler or the platform does. */
function stampOf() {
  const hash = createHash("sha256");
  for (const name of sourceFiles()) hash.update(name).update(readFileSync(join(here, name)));
  hash.update(
    [cxx, cc, napiHeaders().split("/").at(-1), process.platform, process.arch, String(asan)].join("\n"),
  );
  return hash.digest("hex");
}

/** Null when a first use may compile; else the reason why not, with what would mend it. */
function whyNotNow() {
  const mend = `run \`node ${join(here, "build.mjs")}\``;
  if (process.platform !== "linux") return `the addon is for Linux, and this is ${process.platform}`;
  if (existsSync(failedFile))
    return `${readFileSync(failedFile, "utf8").trim()}; when that is mended, ${mend}`;
  const missing = [cxx, cc].find((compiler) => spawnSync(compiler, ["--version"]).error);
  if (missing !== undefined)
    return `there is no compiler \`${missing}\`; install one (for example g++) and start again, or ${mend}`;
  try {
    mkdirSync(join(here, "build"), { recursive: true });
    accessSync(join(here, "build"), constants.W_OK);
    return null;
  } catch {
    return `${join(here, "build")} cannot be written; as the user it belongs to, ${mend}`;
  }
}

function warn(message) {
  const line = "=".repeat(100);
  console.warn(
    `${line}\nprocwire: WARNING: ${message}\nprocwire: pipes fall back to node:child_process; terminals are refused\n${line}`,
  );
}
