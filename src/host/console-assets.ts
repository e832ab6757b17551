import { existsSync } from "node:fs";
import { join } from "node:path";

/** Returns the directory of the built web console, for the bundle, the built library and the sources. */
export function consoleAssetsPath(): string {
  const found = ["../web/", "../../dist/web/"]
    .map((path) => join(import.meta.dirname, path))
    .find((path) => existsSync(`${path}console.js`));
  if (found === undefined) throw new Error("find web console: it is not built; run `npm run build`");
  return found;
}
