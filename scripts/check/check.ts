/** `npm run check`: format, lint, types, imports, unused code, prose, claims of the documents, and the size budgets. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { API_GROUPS, apiDocument, DOCUMENT, MAX_PUBLIC_NAMES } from "../docs/api-doc.ts";
import { checkCFormat } from "./check-c-format.ts";
import { checkDocuments } from "./check-documents.ts";
import { checkDuplicates } from "./check-duplicates.ts";
import { checkLayout } from "./check-layout.ts";
import { lockfileProblems } from "./check-lockfiles.ts";
import { checkProse } from "./check-prose.ts";
import { checkSpreads } from "./check-spreads.ts";

const bin = (name: string) => `node_modules/.bin/${name}`;

const steps: [string, () => string | null][] = [
  ["format and lint (biome)", () => command(bin("biome"), ["check", "."])],
  ["format of C and C++ (clang-format)", checkCFormat],
  ["promises and switches (eslint)", () => command(bin("eslint"), ["src", "test", "bench"])],
  ["types (tsc)", () => command(bin("tsc"), ["--noEmit"])],
  ["types of the web console (tsc)", () => command(bin("tsc"), ["--noEmit", "-p", "src/web"])],
  ["imports (dependency-cruiser)", imports],
  ["unused code (knip)", () => command(bin("knip"), [])],
  ["conditional spreads", checkSpreads],
  ["layout", checkLayout],
  ["duplicates", checkDuplicates],
  ["documents", checkDocuments],
  ["prose", checkProse],
  ["API reference", checkApiDocument],
  ["lockfiles", () => lockfileProblems().join("\n") || null],
  ["hosts of package registries", registryHosts],
];

let failed = 0;
for (const [name, run] of steps) {
  const problem = run();
  process.stdout.write(`${problem === null ? "ok  " : "FAIL"} ${name}\n`);
  if (problem !== null) {
    failed++;
    process.stdout.write(`${problem}\n`);
  }
}
process.exitCode = failed === 0 ? 0 : 1;

function command(program: string, args: string[]): string | null {
  const result = spawnSync(program, args, { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  if (result.status === 0) return null;
  return `${result.stdout}${result.stderr}${result.error ?? ""}`;
}

/** Checks the import rules, and that dependency-cruiser read every file: a file that it misses has no violation. */
function imports(): string | null {
  const problem = command(bin("depcruise"), ["src", "--output-type", "err"]);
  if (problem !== null) return problem;
  const json = execFileSync(bin("depcruise"), ["src", "--output-type", "json"], {
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
  });
  const { modules } = JSON.parse(json) as { modules: { source: string }[] };
  const checked = new Set(modules.map((module) => module.source));
  const missing = globSync("src/**/*.ts").filter((file) => !checked.has(file));
  return missing.length === 0 ? null : `dependency-cruiser did not see ${missing.length} files: ${missing.join(", ")}`;
}

/** Finds hosts of package registries. npm and apt install from the registries that the host is configured for. */
function registryHosts(): string | null {
  const hosts = "(npmjs|pythonhosted|pypi|debian|crates)[.](org|io)|yarnpkg[.]com|npm[.]pkg[.]github|archive[.]ubuntu";
  const { status, stdout, stderr } = spawnSync("git", ["grep", "-nIE", "--untracked", hosts], { encoding: "utf8" });
  return status === 1 ? null : `${stdout}${stderr}`;
}

/** Checks that the reference is up to date and that the public API stays small. */
function checkApiDocument(): string | null {
  const names = Object.values(API_GROUPS).flat().length;
  if (names > MAX_PUBLIC_NAMES) return `procwire exports ${names} names, at most ${MAX_PUBLIC_NAMES} are allowed`;
  if (existsSync(DOCUMENT) && readFileSync(DOCUMENT, "utf8") === apiDocument()) return null;
  return `${DOCUMENT} is out of date; run \`npm run api-doc\``;
}
