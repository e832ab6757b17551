import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "RELEASING.md"];

const MAX_README_LINES = 120;
const MAX_ARCHITECTURE_LINES = 200;
const MAX_CHANGELOG_LINES = 30;
const MAX_DECISION_LINES = 40;
const WALKS = 5;
const MAX_WALK_STEPS = 20;
/** Files to read from `start` to the `for await` of the user. */
const MAX_FIRST_WALK_FILES = 25;
/** Steps of "Add a method" and the other instructions in CONTRIBUTING.md. */
const MAX_INSTRUCTION_STEPS = 10;
/** A step names a file and a symbol in it: `path` `symbol`. */
const STEP_SYMBOL = /`((?:src|native)\/[\w./-]+\.\w+)`\s+`(#?\w+)`/g;

/**
 * Compares the documents with the repository and returns all problems, or null. Every path, npm script and symbol that they
 * name must exist. ARCHITECTURE.md must have a row for every directory of src and a reason for every dependency.
 */
export function checkDocuments(): string | null {
  const problems: string[] = [];
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as {
    scripts: Record<string, string>;
    dependencies: Record<string, string>;
  };
  for (const document of [...DOCUMENTS, ...globSync("docs/**/*.md", { exclude: ["docs/style.md"] })]) {
    const text = readFileSync(document, "utf8");
    for (const [, path] of text.matchAll(
      /`((?:src|test|bench|native|bin|docs|examples|scripts|interop)\/[\w./-]*)`/g,
    )) {
      if (path && !existsSync(path)) problems.push(`${document} names ${path}, which does not exist`);
    }
    for (const [, script] of text.matchAll(/npm run ([\w:-]+)/g)) {
      if (script && !(script in manifest.scripts))
        problems.push(`${document} names npm run ${script}, which package.json does not define`);
    }
    for (const [, target] of text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)) {
      if (target && !existsSync(join(dirname(document), target)))
        problems.push(`${document} links to ${target}, which does not exist`);
    }
    problems.push(...brokenSteps(document, text));
  }
  const architecture = readFileSync("ARCHITECTURE.md", "utf8");
  for (const directory of globSync("src/*/")) {
    if (!architecture.includes(`\`${directory.replace(/\/?$/, "/")}\``))
      problems.push(`ARCHITECTURE.md has no row for ${directory}`);
  }
  for (const name of Object.keys(manifest.dependencies)) {
    if (!architecture.includes(`\`${name}\``))
      problems.push(`ARCHITECTURE.md gives no reason for the dependency ${name}`);
  }
  problems.push(
    ...longDocuments(),
    ...walkProblems(architecture),
    ...longInstructions(readFileSync("CONTRIBUTING.md", "utf8")),
  );
  return problems.length === 0 ? null : problems.join("\n");
}

function brokenSteps(document: string, text: string): string[] {
  return [...text.matchAll(STEP_SYMBOL)].flatMap(([, path, name]) =>
    path && name && existsSync(path) && !new RegExp(`(?<![\\w#])${name}\\b`).test(readFileSync(path, "utf8"))
      ? [`${document} names ${name} in ${path}, which does not contain it`]
      : [],
  );
}

/** Checks the number of walks, of their steps and of the files of the first one, and that every step names a symbol. */
export function walkProblems(architecture: string): string[] {
  const walks = architecture.split(/^## /m).filter((section) => section.startsWith("Walk: "));
  const problems = walks.flatMap((walk) => {
    const title = walk.slice(0, walk.indexOf("\n"));
    const steps = walk.split(/^\d+\. /m).slice(1);
    return [
      ...(steps.length > MAX_WALK_STEPS
        ? [`${title}: ${steps.length} steps, at most ${MAX_WALK_STEPS} are allowed`]
        : []),
      ...steps.flatMap((step, index) =>
        step.search(STEP_SYMBOL) < 0 ? [`${title}: step ${index + 1} names no symbol`] : [],
      ),
    ];
  });
  const firstFiles = new Set(Array.from((walks[0] ?? "").matchAll(STEP_SYMBOL), ([, path]) => path));
  if (firstFiles.size > MAX_FIRST_WALK_FILES)
    problems.push(`the first walk names ${firstFiles.size} files, at most ${MAX_FIRST_WALK_FILES} are allowed`);
  return walks.length === WALKS
    ? problems
    : [`ARCHITECTURE.md has ${walks.length} walks instead of ${WALKS}`, ...problems];
}

/** Reports sections of CONTRIBUTING.md whose numbered list is too long. */
export function longInstructions(contributing: string): string[] {
  return contributing.split(/^## /m).flatMap((section) => {
    const steps = section.match(/^\d+\. /gm)?.length ?? 0;
    if (steps <= MAX_INSTRUCTION_STEPS) return [];
    const title = section.slice(0, section.indexOf("\n"));
    return [`CONTRIBUTING.md, ${title}: ${steps} steps, at most ${MAX_INSTRUCTION_STEPS} are allowed`];
  });
}

function longDocuments(): string[] {
  const limits: [document: string, maxLines: number][] = [
    ["README.md", MAX_README_LINES],
    ["ARCHITECTURE.md", MAX_ARCHITECTURE_LINES],
    ["CHANGELOG.md", MAX_CHANGELOG_LINES],
    ...globSync("docs/decisions/[0-9]*.md").map((record): [string, number] => [record, MAX_DECISION_LINES]),
  ];
  return limits.flatMap(([document, maxLines]) => {
    const lines = readFileSync(document, "utf8").trimEnd().split("\n").length;
    return lines > maxLines ? [`${document} has ${lines} lines, at most ${maxLines} are allowed`] : [];
  });
}
