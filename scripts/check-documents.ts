import { existsSync, globSync, readFileSync } from "node:fs";

/**
 * Checks the documents against the repository: every path they name exists, ARCHITECTURE.md has a row for every folder of
 * src and a sentence for every dependency, and every npm script they tell of is one.
 */
export function checkDocuments(): string | null {
  const problems: string[] = [];
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as {
    scripts: Record<string, string>;
    dependencies: Record<string, string>;
  };
  for (const document of ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]) {
    const text = readFileSync(document, "utf8");
    for (const [, path] of text.matchAll(
      /`((?:src|test|bench|native|bin|docs|examples|scripts|interop)\/[\w./-]*)`/g,
    )) {
      if (path && !existsSync(path)) problems.push(`${document} names ${path}, which is not there`);
    }
    for (const [, script] of text.matchAll(/npm run ([\w:-]+)/g)) {
      if (script && !(script in manifest.scripts))
        problems.push(`${document} names npm run ${script}, which is no script`);
    }
    for (const [, target] of text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)) {
      if (target && !existsSync(target)) problems.push(`${document} links to ${target}, which is not there`);
    }
  }
  const architecture = readFileSync("ARCHITECTURE.md", "utf8");
  for (const folder of globSync("src/*/")) {
    if (!architecture.includes(`\`${folder.replace(/\/?$/, "/")}\``))
      problems.push(`ARCHITECTURE.md has no row for ${folder}`);
  }
  for (const name of Object.keys(manifest.dependencies)) {
    if (!architecture.includes(`\`${name}\``))
      problems.push(`ARCHITECTURE.md has no sentence on the dependency ${name}`);
  }
  problems.push(...brokenSteps(architecture), ...foldersWithoutSentence(), ...namesGivenTwice());
  return problems.length === 0 ? null : problems.join("\n");
}

/** A walk names files and what to look for in each: `path` `name`. Both have to be there. */
function brokenSteps(architecture: string): string[] {
  return [...architecture.matchAll(/`((?:src|native)\/[\w./-]+\.\w+)`\s+`(#?\w+)`/g)].flatMap(
    ([, path, name]) =>
      path &&
      name &&
      existsSync(path) &&
      !new RegExp(`(?<![\\w#])${name}\\b`).test(readFileSync(path, "utf8"))
        ? [`ARCHITECTURE.md looks for ${name} in ${path}, which has none`]
        : [],
  );
}

/** Every folder has a README.md that begins with a sentence on what the folder is. */
function foldersWithoutSentence(): string[] {
  return globSync(["src/**/", "native/*/"])
    .map((folder) => folder.replace(/\/?$/, "/"))
    .filter((folder) => folder !== "src/" && !folder.startsWith("native/build/"))
    .filter(
      (folder) => !existsSync(`${folder}README.md`) || readFileSync(`${folder}README.md`, "utf8").length < 40,
    )
    .map((folder) => `${folder} has no README.md that says what it is`);
}

/** No two files of src have the same name: a search by name finds one file. */
function namesGivenTwice(): string[] {
  const seen = new Map<string, string>();
  return globSync("src/**/*.ts").flatMap((path) => {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const other = seen.get(name);
    seen.set(name, path);
    return other === undefined ? [] : [`${path} has the same name as ${other}`];
  });
}
