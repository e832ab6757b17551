/**
 * Mutation tests: changes one place of a source file at a time, and reports the changes that no test notices.
 *
 *   npm run mutate -- PATH... [--sample N] [--seed N] [--min PERCENT] [--tests GLOB] [--nearest N] [--jobs N]
 *
 * PATH is a file, a directory or a glob. The script never writes to the checkout: a preloaded hook replaces the source. For
 * each file it runs the `--nearest` test files of `npm test` by distance in the import graph (default: 30), or those of
 * `--tests`. One run without a mutant measures the time of each test file and the code that it executes. The script
 * then runs the test files that execute the mutated code, the fastest first, until one fails.
 *
 * Mutants that change no behavior are listed in mutate-equivalent.json by the code of their line, with the reason.
 */
import { spawn, spawnSync } from "node:child_process";
import { hash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import ts from "typescript";
import { findMutants, type Mutant } from "./mutants.ts";

const HOOK = pathToFileURL(join(import.meta.dirname, "mutate-hook.ts")).href;
const root = join(import.meta.dirname, "../..");
/** Maximum time of a test file without a mutant; slower test files are skipped. */
const BASELINE_TIMEOUT_MS = 120_000;
const MIN_TIMEOUT_MS = 10_000;
/** Number of imports by which a test of the same component counts as nearer. */
const SAME_COMPONENT_BONUS = 3;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    sample: { type: "string" },
    seed: { type: "string", default: "1" },
    min: { type: "string", default: "0" },
    tests: { type: "string" },
    nearest: { type: "string", default: "30" },
    jobs: { type: "string", default: String(availableParallelism()) },
  },
});
const jobs = Number(values.jobs);
/**
 * Runs a command in a pid namespace, which ends with it: a mutated server may leave processes behind that no signal to its
 * group reaches. Only root can do this without becoming another user; others run the command directly.
 */
const UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
const CONTAINED =
  process.getuid?.() === 0 && spawnSync("unshare", [...UNSHARE.slice(1), "true"]).status === 0
    ? // The shell is process 1, so that the test is not.
      [...UNSHARE, "sh", "-c", '"$@"; exit $?', "sh"]
    : [];

interface Equivalent {
  /** Default: all files, for a line that only one file contains. */
  path?: string;
  /** The trimmed source line. */
  code: string;
  mutation: string;
  reason: string;
}

interface Candidate extends Mutant {
  path: string;
  code: string;
  lineStart: number;
}

interface Baseline {
  ms: number;
  /** Returns whether the test file executed this place of a source file. */
  reaches(path: string, offset: number): boolean;
}

const equivalents: Equivalent[] = JSON.parse(readFileSync(join(import.meta.dirname, "mutate-equivalent.json"), "utf8"));
const imports = new Map<string, string[]>();
const fixtures = Map.groupBy(
  globSync("test/fixtures/**/*.ts").map((path) => resolve(path)),
  (path) => basename(path),
);
const scratch = mkdtempSync(join(tmpdir(), "procwire-mutate-"));
// Some tests run as an ordinary user.
chmodSync(scratch, 0o1777);
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
let runs = 0;
const running = new Set<number>();
process.on("exit", () => {
  for (const pid of running) endGroup(pid);
});

process.exitCode = await mutate();

async function mutate(): Promise<number> {
  const sources = positionals.flatMap(sourcesIn);
  if (sources.length === 0) throw new Error(`no source file in \`${positionals.join(" ")}\``);
  const all = sources.flatMap((path) => {
    const text = readFileSync(path, "utf8");
    const lines = text.split("\n");
    return findMutants(path, text).map((mutant) => ({
      ...mutant,
      ...{ path, code: lines[mutant.line - 1]?.trim() ?? "" },
      lineStart: text.lastIndexOf("\n", mutant.start) + 1,
    }));
  });
  const counted = all.filter((mutant) => !isEquivalent(mutant));
  const chosen = values.sample === undefined ? counted : sample(counted, Number(values.sample));
  const tests = findTests([...new Set(chosen.map(({ path }) => path))]);
  const files = [...new Set([...tests.values()].flat())];
  console.log(
    `${chosen.length} of ${counted.length} mutants in ${sources.length} files (seed ${values.seed}), ${files.length} test files`,
  );
  const baselines = await measure(files);
  const survivors: string[] = [];
  let done = 0;
  await inParallel(chosen, async (mutant) => {
    const reaching = (tests.get(mutant.path) ?? [])
      .flatMap((file) => ({ file, baseline: baselines.get(file) }))
      .filter(({ baseline }) => baseline?.reaches(mutant.path, mutant.start))
      .sort((a, b) => (a.baseline?.ms ?? 0) - (b.baseline?.ms ?? 0));
    const killer = await firstToFail(
      mutant,
      reaching.map(({ file, baseline }) => ({ file, ms: baseline?.ms ?? 0 })),
    );
    done++;
    if (killer !== null) return;
    const line = `${mutant.path}:${mutant.line}: ${mutant.mutation} (${reaching.length} test files reach it)`;
    survivors.push(line);
    console.log(`[${done}/${chosen.length}] survived: ${line}`);
  });
  const killed = chosen.length - survivors.length;
  const score = chosen.length === 0 ? 100 : (100 * killed) / chosen.length;
  console.log(`\nsurvivors:\n${survivors.sort().join("\n") || "none"}\n`);
  console.log(`score ${score.toFixed(1)}%: ${killed} of ${chosen.length} killed`);
  if (all.length > counted.length) console.log(`${all.length - counted.length} equivalent mutants not counted`);
  if (score >= Number(values.min)) return 0;
  console.log(`the score is below ${values.min}%`);
  return 1;
}

function sourcesIn(path: string): string[] {
  const isDirectory = existsSync(path) && statSync(path).isDirectory();
  return globSync(isDirectory ? join(path, "**/*.ts") : path)
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"))
    .map((file) => file.replace(/^\.\//, ""))
    .sort();
}

function isEquivalent({ path, code, mutation }: Candidate): boolean {
  return equivalents.some(
    (known) => known.code === code && known.mutation === mutation && (known.path ?? path) === path,
  );
}

/** Selects mutants by a hash of seed and mutant, so that an edit elsewhere changes few of them. */
function sample(mutants: Candidate[], count: number): Candidate[] {
  const keyed = mutants.map((mutant) => {
    const { code, mutation, start, text } = mutant;
    const column = start - mutant.lineStart;
    return { mutant, key: hash("sha1", [values.seed, code, mutation, column, text].join("\n")) };
  });
  keyed.sort((a, b) => (a.key < b.key ? -1 : 1));
  return keyed.slice(0, count).map(({ mutant }) => mutant);
}

/** Returns the test files to run for each source file, the nearest first. */
function findTests(paths: string[]): Map<string, string[]> {
  if (values.tests !== undefined) {
    const named = globSync(values.tests).sort();
    return new Map(paths.map((path) => [path, named]));
  }
  const all = globSync(suiteGlob()).sort();
  const distances = new Map(all.map((file) => [file, distancesFrom(file)]));
  return new Map(
    paths.map((path) => {
      const target = resolve(path);
      const importing = all.flatMap((file) => {
        const reached = distances.get(file);
        const distance = reached?.get(target);
        if (reached === undefined || distance === undefined) return [];
        const isSameComponent = component(file) === component(path);
        return [
          {
            file,
            distance: isSameComponent ? distance - SAME_COMPONENT_BONUS : distance,
            size: reached.size,
          },
        ];
      });
      // Of two test files at the same distance, the one with fewer imports is more specific.
      importing.sort((a, b) => a.distance - b.distance || a.size - b.size);
      return [path, importing.slice(0, Number(values.nearest)).map(({ file }) => file)];
    }),
  );
}

/** Returns the directory below `src` or `test`, because the tests mirror the sources. */
function component(path: string): string | undefined {
  return path.split("/").slice(1, -1)[0];
}

/** Returns the test files of `npm test`, because the other suites need additional packages. */
function suiteGlob(): string {
  const { scripts }: { scripts: Record<string, string> } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const glob = /"([^"]+)"\s*$/.exec(scripts.test ?? "")?.[1];
  if (glob === undefined) throw new Error("package.json: the script `test` names no glob in quotes");
  return glob;
}

function distancesFrom(file: string): Map<string, number> {
  const start = resolve(file);
  const distances = new Map([[start, 0]]);
  for (const [path, distance] of distances)
    for (const imported of findImports(path)) if (!distances.has(imported)) distances.set(imported, distance + 1);
  return distances;
}

/** Returns the files of this checkout that a file imports, except for types, and the fixtures that it names. */
function findImports(path: string): string[] {
  const known = imports.get(path);
  if (known) return known;
  const found: string[] = [];
  const add = (node: ts.Expression | undefined) => {
    if (!node || !ts.isStringLiteralLike(node) || !node.text.startsWith(".")) return;
    const target = resolve(dirname(path), node.text);
    if (/\.tsx?$/.test(target) && existsSync(target)) found.push(target);
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) {
      if (node.importClause?.phaseModifier !== ts.SyntaxKind.TypeKeyword) add(node.moduleSpecifier);
    } else if (ts.isExportDeclaration(node)) {
      if (!node.isTypeOnly) add(node.moduleSpecifier);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(node.arguments[0]);
    else if (ts.isStringLiteralLike(node)) found.push(...(fixtures.get(basename(node.text)) ?? []));
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest));
  imports.set(path, found);
  return found;
}

/** Runs each test file without a mutant. A test file that fails here is skipped. */
async function measure(files: string[]): Promise<Map<string, Baseline>> {
  const baselines = new Map<string, Baseline>();
  await inParallel(files, async (file) => {
    const coverage = join(scratch, `coverage-${runs++}`);
    mkdirSync(coverage);
    // A test that runs as an ordinary user writes its coverage too.
    chmodSync(coverage, 0o1777);
    const measured = await run(file, BASELINE_TIMEOUT_MS, { NODE_V8_COVERAGE: coverage }, "end");
    // A test of a process's environment fails only under coverage.
    const { hasFailed, ms } = measured.hasFailed ? await run(file, BASELINE_TIMEOUT_MS, {}) : measured;
    if (hasFailed) console.log(`left out, as it fails without a mutant: ${file}`);
    else baselines.set(file, { ms, reaches: readCoverage(coverage) });
    rmSync(coverage, { recursive: true, force: true });
  });
  return baselines;
}

interface CoverageRange {
  startOffset: number;
  endOffset: number;
  count: number;
}

/** Type stripping keeps all offsets, so the ranges are those of the source. */
function readCoverage(directory: string): Baseline["reaches"] {
  const ranges = new Map<string, CoverageRange[][]>();
  for (const name of readdirSync(directory)) {
    const { result } = parseCoverage(join(directory, name));
    for (const { url, functions } of result) {
      if (!url.startsWith("file://")) continue;
      const path = fileURLToPath(url);
      if (!path.startsWith(join(root, "src"))) continue;
      const all = functions.flatMap((covered) => covered.ranges);
      ranges.set(path, [...(ranges.get(path) ?? []), all]);
    }
  }
  return (path, offset) => (ranges.get(resolve(path)) ?? []).some((all) => isExecuted(all, offset));
}

/** The innermost range counts. */
function isExecuted(ranges: CoverageRange[], offset: number): boolean {
  let innermost: CoverageRange | null = null;
  for (const range of ranges) {
    if (range.startOffset > offset || range.endOffset <= offset) continue;
    const isInner =
      innermost === null || range.endOffset - range.startOffset <= innermost.endOffset - innermost.startOffset;
    if (isInner) innermost = range;
  }
  return innermost !== null && innermost.count > 0;
}

interface Coverage {
  result: { url: string; functions: { ranges: CoverageRange[] }[] }[];
}

/** Returns an empty result for an incomplete file, which a process leaves if it is killed while it writes. */
function parseCoverage(path: string): Coverage {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return { result: [] };
  }
}

/** Returns the test file that noticed the mutant, or null. */
async function firstToFail(mutant: Candidate, tests: { file: string; ms: number }[]): Promise<string | null> {
  const source = readFileSync(mutant.path, "utf8");
  const mutated = join(scratch, `mutant-${runs++}.ts`);
  writeFileSync(mutated, `${source.slice(0, mutant.start)}${mutant.text}${source.slice(mutant.end)}`);
  const env = { MUTATED_URL: pathToFileURL(resolve(mutant.path)).href, MUTATED_SOURCE: mutated };
  try {
    for (const { file, ms } of tests) {
      const { hasFailed } = await run(file, Math.max(MIN_TIMEOUT_MS, 4 * ms), env);
      if (hasFailed) return file;
    }
    return null;
  } finally {
    rmSync(mutated);
  }
}

/** Runs one test file in an empty home until its end, its timeout or its first failed test. */
async function run(
  file: string,
  timeoutMs: number,
  env: Record<string, string>,
  until: "end" | "failure" = "failure",
): Promise<{ hasFailed: boolean; ms: number }> {
  const home = mkdtempSync(join(scratch, "home-"));
  chmodSync(home, 0o1777);
  const startedAt = performance.now();
  const [program = "", ...args] = [...CONTAINED, process.execPath, "--test-reporter=tap", file];
  const child = spawn(program, args, {
    env: { ...process.env, HOME: home, TMPDIR: home, NODE_OPTIONS: `--import=${HOOK}`, ...env },
    stdio: ["ignore", "pipe", "ignore"],
    // Its own process group, so that its children end with it.
    detached: true,
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`cannot start ${program}`);
  running.add(pid);
  let hasFailed = false;
  const fail = () => {
    hasFailed = true;
    endGroup(pid);
  };
  const timer = setTimeout(fail, timeoutMs);
  let lastLine = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = `${lastLine}${text}`.split("\n");
    lastLine = lines.pop() ?? "";
    if (until === "failure" && lines.some((line) => /^\s*not ok /.test(line) && !/# (SKIP|TODO)/.test(line))) fail();
  });
  const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
  clearTimeout(timer);
  endGroup(pid);
  running.delete(pid);
  rmSync(home, { recursive: true, force: true });
  return { hasFailed: hasFailed || code !== 0, ms: performance.now() - startedAt };
}

function endGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The whole process group has exited.
  }
}

async function inParallel<T>(items: readonly T[], task: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  const work = async () => {
    for (let item = items[next++]; item !== undefined; item = items[next++]) await task(item);
  };
  await Promise.all(Array.from({ length: jobs }, work));
}
