import { existsSync } from "node:fs";
import { join } from "node:path";

/** Where the built page of the web console is, wherever this runs from: the bundle, the built library or the sources. */
export function webFolder(): string {
  const found = ["../web/", "../../dist/web/"]
    .map((path) => join(import.meta.dirname, path))
    .find((path) => existsSync(`${path}console.js`));
  if (found === undefined) throw new Error("the web console is not built; `npm run build` builds it");
  return found;
}
