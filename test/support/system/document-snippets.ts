/** The programs in a document, and the output that the document states for each. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const ENTRIES: Readonly<Record<string, string>> = {
  procwire: "src/index.ts",
  "procwire/client": "src/client/browser.ts",
  "procwire/agents": "src/adapters/agents.ts",
  "procwire/ai": "src/adapters/ai.ts",
};

export interface Snippet {
  code: string;
  /** Documented output; null if the document does not state it. */
  prints: string | null;
}

export function snippetsOf(document: string): Snippet[] {
  const text = readFileSync(join(ROOT, "docs", document), "utf8");
  const found = [...text.matchAll(/```ts\n([\s\S]*?)```(?:\n\n```text\n([\s\S]*?)```)?/g)];
  assert.ok(found.length > 0, `${document} has no snippet`);
  return found.map(([, code = "", prints]) => ({ code, prints: prints ?? null }));
}

export interface SnippetOptions {
  /** Replaces the URL in the document. */
  url?: string;
  /** Directory that contains the packages. */
  modules?: string;
  env?: Record<string, string>;
  files?: Record<string, string>;
}

/** Runs a program unchanged, with this working copy as the package. Returns its output. */
export function runSnippet(code: string, options: SnippetOptions = {}): string {
  const [output = ""] = runSnippets([code], options);
  return output;
}

/** Separates the output of two programs. */
const SEPARATOR = "\0\n";

/** Runs programs one after the other in one Node process, which loads the library once. Returns the output of each. */
export function runSnippets(programs: readonly string[], options: SnippetOptions = {}): string[] {
  const directory = mkdtempSync(join(tmpdir(), "procwire-snippet-"));
  try {
    symlinkSync(options.modules ?? join(ROOT, "node_modules"), join(directory, "node_modules"));
    for (const [name, text] of Object.entries(options.files ?? {})) writeFileSync(join(directory, name), text);
    for (const [index, code] of programs.entries()) {
      const program = code
        .replace(/from "(procwire(?:\/\w+)?)"/g, (_, name: string) => `from "file://${join(ROOT, entryOf(name))}"`)
        .replaceAll("ws://127.0.0.1:7070", options.url ?? "ws://127.0.0.1:7070");
      writeFileSync(join(directory, `program-${index + 1}.ts`), program);
    }
    const imports = programs.map((_, index) => `await import("./program-${index + 1}.ts");`);
    const separator = `\nprocess.stdout.write(${JSON.stringify(SEPARATOR)});\n`;
    writeFileSync(join(directory, "main.ts"), imports.join(separator));
    writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
    const path = [join(ROOT, "bin"), process.env.PATH].join(delimiter);
    const { status, stdout, stderr } = spawnSync(process.execPath, ["main.ts"], {
      cwd: directory,
      env: { ...process.env, PATH: path, ...options.env },
      encoding: "utf8",
      timeout: 600_000,
    });
    assert.equal(status, 0, `${stdout}${stderr}`);
    return stdout.split(SEPARATOR);
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

function entryOf(name: string): string {
  const entry = ENTRIES[name];
  assert.ok(entry, `the package has no entry ${name}`);
  return entry;
}
