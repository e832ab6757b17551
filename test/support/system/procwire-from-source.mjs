/** Preloaded with `--import`: resolves `procwire` to the sources of this clone instead of `dist/`, which may be outdated. */
import { registerHooks } from "node:module";

const SOURCE = new URL("../../../src/index.ts", import.meta.url).href;

registerHooks({
  resolve: (specifier, context, next) => next(specifier === "procwire" ? SOURCE : specifier, context),
});
