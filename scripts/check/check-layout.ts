import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, dirname } from "node:path";

/** Maximum files of a directory, so that a reader can survey it. */
const MAX_FILES_PER_DIRECTORY = 20;
/** The size of src may only fall; a feature that needs more raises this number in its own commit. */
const MAX_SOURCE_LINES = 87_000;

/** Checks the size of src and of its directories, file names and README.md files. Returns all problems, or null. */
export function checkLayout(): string | null {
  const sources = globSync("src/**/*.{ts,tsx}");
  const files = globSync("{src,native,test,scripts,bench}/**/*.{ts,tsx,cc,c,h,hpp,mjs}", {
    exclude: ["native/build/**", "test/fixtures/**", "**/node_modules/**"],
  });
  const lines = sources.reduce((sum, path) => sum + readFileSync(path, "utf8").split("\n").length - 1, 0);
  const problems = [
    ...fullDirectories(files),
    ...duplicateFileNames(sources),
    ...directoriesWithoutReadme(),
    ...(lines > MAX_SOURCE_LINES ? [`src has ${lines} lines, at most ${MAX_SOURCE_LINES} are allowed`] : []),
  ];
  return problems.join("\n") || null;
}

/** Reports directories with too many files. A header and its source count as one file. */
export function fullDirectories(paths: readonly string[]): string[] {
  const files = new Map<string, Set<string>>();
  for (const path of paths) {
    const names = files.get(dirname(path)) ?? new Set();
    files.set(dirname(path), names.add(basename(path).replace(/\.(?:cc?|h|hpp)$/, "")));
  }
  return [...files].flatMap(([directory, { size }]) =>
    size > MAX_FILES_PER_DIRECTORY
      ? [`${directory} has ${size} files, at most ${MAX_FILES_PER_DIRECTORY} are allowed`]
      : [],
  );
}

/** Reports equal file names, because a search by name must find one file. */
export function duplicateFileNames(paths: readonly string[]): string[] {
  const byName = new Map<string, string>();
  return paths.flatMap((path) => {
    const earlier = byName.get(basename(path));
    byName.set(basename(path), path);
    return earlier === undefined ? [] : [`${path} has the same name as ${earlier}`];
  });
}

/** Every directory of src and native has a README.md with at least one sentence. */
function directoriesWithoutReadme(): string[] {
  return globSync(["src/**/", "native/*/"])
    .map((directory) => directory.replace(/\/?$/, "/"))
    .filter((directory) => directory !== "src/" && !directory.startsWith("native/build/"))
    .filter(
      (directory) => !existsSync(`${directory}README.md`) || readFileSync(`${directory}README.md`, "utf8").length < 40,
    )
    .map((directory) => `${directory} has no README.md that describes it`);
}
