/** Preloaded into each process of a mutated test run: replaces the source of one file. */
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";

const { MUTATED_URL, MUTATED_SOURCE } = process.env;
if (MUTATED_URL !== undefined && MUTATED_SOURCE !== undefined) {
  const source = readFileSync(MUTATED_SOURCE, "utf8");
  registerHooks({
    load: (url, context, nextLoad) => {
      const loaded = nextLoad(url, context);
      return url === MUTATED_URL ? { ...loaded, source } : loaded;
    },
  });
}
