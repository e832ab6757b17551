/** Files of `procwire-client`: the part of `dist/` that its entry point imports. `procwire` imports them from there. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import ts from "typescript";

export const CLIENT_NAME = "procwire-client";
export const CLIENT_ENTRY = "dist/procwire-client";

export interface ClientPackage {
  /** Paths below the repository, sorted. */
  files: string[];
  /** Names of the packages that the files import, sorted. */
  dependencies: string[];
}

/** Follows the imports of the entry point, in the code and in the declarations. */
export function clientPackage(): ClientPackage {
  const files = new Set<string>();
  const dependencies = new Set<string>();
  const waiting = [`${CLIENT_ENTRY}.js`, `${CLIENT_ENTRY}.d.ts`];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (files.has(path)) continue;
    files.add(path);
    for (const { fileName: name } of importsIn(readFileSync(path, "utf8"))) {
      if (name.startsWith(".")) waiting.push(importedFile(path, name));
      else if (path.endsWith(".js") && !name.startsWith("node:")) dependencies.add(packageOf(name));
    }
  }
  return { files: [...files].sort(), dependencies: [...dependencies].sort() };
}

/** Exports of `procwire-client`. The modules below `internal/` are for `procwire` of the same version. */
export const CLIENT_EXPORTS = {
  ".": { types: `./${CLIENT_ENTRY}.d.ts`, default: `./${CLIENT_ENTRY}.js` },
  "./internal/*.js": { types: "./dist/*.d.ts", default: "./dist/*.js" },
  "./package.json": "./package.json",
};

/** Returns the text of a built file of `procwire`, which imports the files of the client from `procwire-client`. */
export function withClientImports(path: string, clientFiles: ReadonlySet<string>): string {
  const text = readFileSync(path, "utf8");
  let rest = 0;
  let rewritten = "";
  for (const { fileName, pos } of importsIn(text)) {
    const imported = fileName.startsWith(".") ? importedFile(path, fileName) : "";
    if (!clientFiles.has(imported)) continue;
    // `pos` is the position of the opening quote.
    rewritten += text.slice(rest, pos + 1) + clientModule(imported);
    rest = pos + 1 + fileName.length;
  }
  return rewritten + text.slice(rest);
}

/** Returns the name by which other packages import a file of the client. */
function clientModule(path: string): string {
  const module = path.replace(/(\.d\.ts|\.js)$/, "");
  return module === CLIENT_ENTRY ? CLIENT_NAME : `${CLIENT_NAME}/internal/${relative("dist", module)}.js`;
}

/** Returns static and dynamic imports, in the order of the text. */
function importsIn(text: string): ts.FileReference[] {
  return ts.preProcessFile(text, true, true).importedFiles.toSorted((one, other) => one.pos - other.pos);
}

/** Declarations import sources by their `.ts` names. */
function importedFile(importer: string, name: string): string {
  const target = relative(".", resolve(dirname(importer), name));
  const path = importer.endsWith(".d.ts") ? target.replace(/(?<!\.d)\.[jt]s$/, ".d.ts") : target;
  if (!existsSync(path)) throw new Error(`${importer} imports ${name}, which does not exist; run \`npm run build\``);
  return path;
}

function packageOf(name: string): string {
  const [scope = "", rest] = name.split("/");
  return scope.startsWith("@") ? join(scope, rest ?? "") : scope;
}

export const CLIENT_README = `# procwire-client

The client library of [procwire](https://procwire.example/) alone: processes, files, HTTP requests and port forwards, on the
local host and on procwire servers. The package \`procwire\` exports the same names from here, and adds the server, the tools
for models and the command line. The modules below \`procwire-client/internal/\` are not part of the API.

\`\`\`js
import { Environment } from "procwire-client";

await using environment = await Environment.create(null); // or "ws://127.0.0.1:7070"
console.log((await environment.run(["uname", "-a"])).stdout);
\`\`\`
`;
