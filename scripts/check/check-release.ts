/**
 * `npm run check:release`: fails while the working copy does not meet the conditions of a release. `RELEASING.md` lists
 * the conditions. Called by `npm run pack:all -- --release` and by npm before it publishes from the working copy.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { lockfileProblems } from "./check-lockfiles.ts";

/** Host of all placeholder addresses. Joined here, so that this file contains no placeholder. */
export const PLACEHOLDER_HOST = ["procwire", "example"].join(".");

/** Fields that package.json and the first entry of package-lock.json share. */
const LOCKED_FIELDS = [
  "name",
  "version",
  "dependencies",
  "devDependencies",
  "optionalDependencies",
  "peerDependencies",
  "engines",
];

/** One line that contains a placeholder address. */
export interface Placeholder {
  file: string;
  line: number;
}

/** Returns every placeholder address in the files that git tracks below `root`, or would track. */
export function findPlaceholders(root: string): Placeholder[] {
  const files = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0");
  return files
    .filter((file) => file !== "" && existsSync(join(root, file)))
    .flatMap((file) =>
      readFileSync(join(root, file), "utf8")
        .split("\n")
        .flatMap((text, index) => (text.includes(PLACEHOLDER_HOST) ? [{ file, line: index + 1 }] : [])),
    );
}

/** Returns why the working copy at `root` cannot be released; empty if it can. */
export function releaseProblems(root: string): string[] {
  return [
    ...findPlaceholders(root).map(({ file, line }) => `${file}:${line}: replace the placeholder address`),
    ...changelogProblems(root),
    ...manifestProblems(root),
    ...lockfileProblems(root),
    ...worktreeProblems(root),
  ];
}

function changelogProblems(root: string): string[] {
  const { version } = readJson(root, "package.json");
  const [, newest = "(none)"] = /^## (.*)$/m.exec(readFileSync(join(root, "CHANGELOG.md"), "utf8")) ?? [];
  const [, released, date = ""] = /^(\S+) - (\d{4}-\d{2}-\d{2})$/.exec(newest) ?? [];
  if (released === version && !Number.isNaN(Date.parse(date))) return [];
  return [`CHANGELOG.md: first section is \`${newest}\`; expected \`${version} - YYYY-MM-DD\``];
}

function manifestProblems(root: string): string[] {
  const manifest = readJson(root, "package.json");
  const lockfile: { packages: Record<string, Record<string, unknown>> } = JSON.parse(
    readFileSync(join(root, "package-lock.json"), "utf8"),
  );
  return LOCKED_FIELDS.filter((field) => !isDeepStrictEqual(manifest[field], lockfile.packages[""]?.[field])).map(
    (field) => `package-lock.json: \`${field}\` differs from package.json; run \`npm install\``,
  );
}

function worktreeProblems(root: string): string[] {
  const changed = git(root, "status", "--porcelain").split("\n").filter(Boolean);
  return changed.length === 0 ? [] : [`git: ${changed.length} uncommitted files; commit or remove them`];
}

function readJson(root: string, file: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(root, file), "utf8"));
}

function git(root: string, ...args: string[]): string {
  return execFileSync("git", args, { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
}

/** Prints every problem of the working copy and reports whether there is none. */
export function checkRelease(root = "."): boolean {
  const problems = releaseProblems(root);
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  if (problems.length > 0) process.stderr.write(`cannot release: ${problems.length} problems; see RELEASING.md\n`);
  return problems.length === 0;
}

if (import.meta.main && !checkRelease()) process.exitCode = 1;
