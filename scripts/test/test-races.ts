/**
 * `npm run test:races`: the tests that repeat a race or go through many cases, with all repetitions and cases. `npm test`
 * runs the same tests with a few. A test belongs to this suite if it imports `repetitions.ts`, directly or through a
 * helper.
 */
import { globSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { runTests } from "./run-tests.ts";

process.chdir(fileURLToPath(new URL("../..", import.meta.url)));
process.env.PROCWIRE_RACES = "1";

const sources = new Map(globSync("test/**/*.ts").map((path) => [path, readFileSync(path, "utf8")]));
const races = importers("repetitions.ts").flatMap((path) =>
  path.endsWith(".test.ts") ? [path] : importers(basename(path)).filter((test) => test.endsWith(".test.ts")),
);
if (races.length === 0) throw new Error("no test imports test/support/system/repetitions.ts");
process.exitCode = runTests([
  "--test-timeout=600000",
  "--test-concurrency=2",
  ...process.argv.slice(2),
  ...new Set(races),
]);

/** Returns the files that import a file of this name. */
function importers(name: string): string[] {
  return [...sources].filter(([, text]) => text.includes(`/${name}"`)).map(([path]) => path);
}
