import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { delimiter, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { PROCWIRE, ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { runSnippet } from "../support/system/document-snippets.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Server URL in the documents. */
const DOCUMENTED_URL = "ws://127.0.0.1:7070";
/** Block languages that are not run: output, and files of other programs. */
const SHOWN = new Set(["text", "toml", "ini", "dockerfile", "yaml"]);
/** Documents whose programs documents.test.ts runs. */
const RUN_BY_DOCUMENTS_TEST = new Set(["client.md", "browser.md", "copy.md", "forward.md", "mcp-clients.md"]);
/** Minimum number of blocks; fewer mean that the test no longer finds them. */
const FEWEST_RUN = 15;
/** Files that the programs of the documents create. */
const LEFT_BEHIND = ["/tmp/procwire-docs"];
const hasPython = spawnSync("python3", ["--version"]).status === 0;

interface Block {
  document: string;
  line: number;
  language: string;
  code: string;
  /** Expected output, from the next block. */
  prints: string | null;
  /** The comment before a block that this test does not run, or null. */
  reason: string | null;
}

function blocksOf(document: string): Block[] {
  const text = readFileSync(join(ROOT, document), "utf8");
  const pattern =
    /(?:^<!-- ((?:not run|run by): [^\n]*?) -->\n+)?^```([a-z]*)\n([\s\S]*?)^```$(?=(?:\n\n```text\n([\s\S]*?)^```$)?)/gm;
  return [...text.matchAll(pattern)].map((found) => ({
    document,
    line: text.slice(0, found.index).split("\n").length,
    language: found[2] ?? "",
    code: found[3] ?? "",
    prints: found[4] ?? null,
    reason: found[1] ?? null,
  }));
}

const BLOCKS = ["README.md", ...globSync("docs/**/*.md", { cwd: ROOT })].sort().flatMap(blocksOf);
const RUN = BLOCKS.filter(({ reason, language }) => reason === null && !SHOWN.has(language));

describe("the code blocks of the documents are run", { timeout: 900_000 }, () => {
  let server: ServeChild;
  before(async () => {
    server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--allow-forward"]).listening();
  });
  after(async () => {
    await server.stop();
    for (const path of LEFT_BEHIND) rmSync(path, { recursive: true, force: true, maxRetries: 10 });
  });

  /** Runs a program in a temporary directory, with the CLI of this checkout and the server of the test. */
  const runProgram = (program: string, args: string[], code: string): string => {
    using scratch = scratchDirectory();
    mkdirSync(join(scratch.path, "home"));
    const { PROCWIRE_CONNECT: _, PROCWIRE_TOKEN: __, ...environment } = process.env;
    const { status, stdout, stderr } = spawnSync(program, [...args, code.replaceAll(DOCUMENTED_URL, server.url)], {
      cwd: scratch.path,
      env: {
        ...environment,
        HOME: join(scratch.path, "home"),
        PATH: [join(PROCWIRE, ".."), process.env.PATH].join(delimiter),
      },
      encoding: "utf8",
      timeout: 200_000,
    });
    assert.equal(status, 0, `${stdout}${stderr}`);
    return stdout;
  };

  for (const { document, line, language, code, prints } of RUN) {
    const name = `${document}:${line} (${language})`;
    switch (language) {
      case "sh":
        test(name, () => {
          const stdout = runProgram("bash", ["-eu", "-o", "pipefail", "-c"], code);
          if (prints !== null) assert.equal(stdout, prints);
        });
        break;
      case "py":
        test(name, { skip: skipUnless(hasPython, "there is no python3") }, () => {
          const stdout = runProgram("python3", ["-c"], code);
          if (prints !== null) assert.equal(stdout, prints);
        });
        break;
      case "json":
        test(name, () => assert.doesNotThrow(() => JSON.parse(code)));
        break;
      case "ts":
        if (document.startsWith("docs/") && RUN_BY_DOCUMENTS_TEST.has(document.slice("docs/".length))) break;
        test(name, () => {
          const stdout = runSnippet(code, { url: server.url });
          if (prints !== null) assert.equal(stdout, prints);
        });
        break;
      default:
        test(name, () => assert.fail(`a block must say its language, and \`${language}\` is none that is known here`));
    }
  }

  test("has a reason and another test for every block that this test does not run", (t) => {
    const unrun = BLOCKS.filter(({ reason }) => reason !== null);
    for (const { document, line, reason } of unrun) {
      t.diagnostic(`${document}:${line}: ${reason}`);
      const [, path] = /^run by: (\S+)$/.exec(reason ?? "") ?? [];
      if (path === undefined) continue;
      // That test reads the block from the document, so that both cannot differ.
      const test = existsSync(join(ROOT, path)) ? readFileSync(join(ROOT, path), "utf8") : "";
      const names = [document, document.replace("docs/", "")];
      assert.ok(
        names.some((name) => test.includes(`"${name}"`)),
        `${path} does not run ${document}:${line}`,
      );
    }
    t.diagnostic(`${RUN.length} blocks are run, ${unrun.length} are not`);
    assert.ok(RUN.length >= FEWEST_RUN, `only ${RUN.length} blocks are run`);
  });
});
