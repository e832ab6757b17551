import { globSync, readFileSync } from "node:fs";
import type { Plugin } from "esbuild";

/**
 * Takes Node's built-ins by `process.getBuiltinModule` instead of by import. An import reads every export of a built-in,
 * and some of those (node:http's WebSocket) load a whole library behind a getter: 40 ms of start-up nobody asked for.
 */
export function builtinPlugin(): Plugin {
  const names = importedNames();
  return {
    name: "builtins",
    setup(build) {
      build.onResolve({ filter: /^node:/ }, ({ path, kind }) =>
        // What is imported later is imported as it is: the names it is used by are not known here.
        kind === "dynamic-import"
          ? { path, external: true }
          : { path, namespace: "builtin", sideEffects: false },
      );
      build.onLoad({ filter: /.*/, namespace: "builtin" }, ({ path }) => {
        const used = [...(names.get(path) ?? [])];
        const lines = used.map((name) => `export const ${name} = builtin.${name};`);
        return {
          contents: `const builtin = process.getBuiltinModule(${JSON.stringify(path)});\nexport default builtin;\n${lines.join("\n")}`,
          loader: "js",
        };
      });
    },
  };
}

/** Which names the sources import from which built-in. */
function importedNames(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const file of globSync("src/**/*.ts")) {
    for (const [, list, module] of readFileSync(file, "utf8").matchAll(
      /import\s+\{([^}]*)\}\s+from\s+"(node:[^"]+)"/g,
    )) {
      if (list === undefined || module === undefined) continue;
      const names = found.get(module) ?? new Set();
      found.set(module, names);
      for (const entry of list.split(",")) {
        const name = entry.trim().split(/\s+as\s+/)[0] ?? "";
        if (name !== "" && !name.startsWith("type ")) names.add(name);
      }
    }
  }
  return found;
}
