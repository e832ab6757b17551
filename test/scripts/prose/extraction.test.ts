import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkText } from "../../../scripts/prose/check-text.ts";

// prose-ok-file: folder -- the samples use this word

/** Returns `LINE KIND RULE` per finding. */
function found(file: string, ...lines: string[]): string[] {
  return checkText(file, `${lines.join("\n")}\n`).findings.map(({ line, kind, rule }) => `${line} ${kind} ${rule}`);
}

describe("TypeScript", () => {
  test("line comments of one column are one text", () => {
    assert.deepEqual(found("src/a.ts", "// The caller goes", "// on.", "const a = 1; // It goes", "// on."), [
      "1 comment go-on",
    ]);
  });

  test("a block comment is one text, with the line of the phrase", () => {
    assert.deepEqual(found("src/a.ts", "/**", " * Starts the server.", " * A folder.", " */"), ["3 comment folder"]);
  });

  test("code spans, addresses, interpolations and examples are not prose", () => {
    const comments = ["// Calls `tell` at ftp://host/folder.", "", "/** Runs. @example folder */"];
    assert.deepEqual(found("src/a.ts", ...comments), []);
    assert.deepEqual(found("src/a.ts", `throw new Error(\`path \${folder(\`folder\`)} is \${told} invalid\`);`), []);
  });

  test("comment markers in strings, templates and regular expressions start no comment", () => {
    const code = ['const a = "// folder";', `const b = \`\${'\`'} // folder\`;`, "const c = /[/]\\/* folder/;"];
    assert.deepEqual(found("src/a.ts", ...code, "// A folder."), ["4 comment folder"]);
  });

  test("a division starts no regular expression", () => {
    assert.deepEqual(found("src/a.ts", "const a = b / c; // folder / x"), ["1 comment folder"]);
  });

  test("strings in calls that report errors are messages", () => {
    assert.deepEqual(found("src/a.ts", 'throw new TypeError("the folder is missing");'), ["1 error folder"]);
    assert.deepEqual(found("src/a.ts", "reject(wrap(`the", "folder is missing`));"), ["2 error folder"]);
    assert.deepEqual(found("src/a.ts", 'throw new TypeError("missing folder");'), []);
    assert.deepEqual(found("src/a.ts", 'spawn("the folder is missing");'), []);
  });

  test("strings of the CLI are help texts", () => {
    assert.deepEqual(found("src/cli/a.ts", 'const help = "the folder to copy";'), ["1 help folder"]);
  });

  test("first arguments of tests are titles", () => {
    const code = ['test("creates a folder", () => {', '  spawn("creates a folder");', "});"];
    assert.deepEqual(found("test/a.test.ts", ...code), ["1 test folder"]);
    assert.deepEqual(found("test/a.test.ts", 'test(name, "creates a folder");'), []);
    assert.deepEqual(found("test/a.test.ts", 'test(name, () => [["a folder", 1]]);'), ["1 test folder"]);
  });

  test("a literal without an end stops at its line", () => {
    assert.deepEqual(found("src/a.ts", 'const a = "folder', "// A folder."), ["2 comment folder"]);
  });
});

describe("TSX", () => {
  test("closing tags start no regular expression", () => {
    const code = ["const a = <p>text</p>; // A folder.", "const b = <br />; // A folder."];
    assert.deepEqual(found("src/a.tsx", ...code), ["1 comment folder", "2 comment folder"]);
  });

  test("an apostrophe in a word starts no string", () => {
    assert.deepEqual(found("src/a.tsx", "const a = <p>don't</p>; // A folder."), ["1 comment folder"]);
  });
});

describe("C and C++", () => {
  for (const file of ["native/a.c", "native/a.cc", "native/a.h", "bench/a.hpp"]) {
    test(`${file} has both kinds of comments`, () => {
      assert.deepEqual(found(file, "/* A folder. */", "int a = 1'000; // A folder."), [
        "1 comment folder",
        "2 comment folder",
      ]);
    });
  }

  test("messages of calls are checked", () => {
    assert.deepEqual(found("native/a.c", 'warn("no such folder: %s", path);'), ["1 error folder"]);
  });
});

describe("shell", () => {
  for (const file of ["test/a.sh", "bin/procwire", ".ci/run"]) {
    test(`${file} has comments`, () => {
      assert.deepEqual(found(file, "#!/bin/sh folder", "# Creates the", "# folder.", "  # A folder."), [
        "3 comment folder",
        "4 comment folder",
      ]);
    });
  }

  test("a number sign after code is not a comment", () => {
    assert.deepEqual(found("test/a.sh", "echo $# folder", 'echo "# folder"'), []);
  });
});

describe("Markdown", () => {
  test("paragraphs, items, headings and cells are separate texts", () => {
    const text = ["# A folder", "It goes", "on.", "- goes", "- on", "", "| a | b |", "|---|---|", "| goes | on |"];
    assert.deepEqual(found("docs/a.md", ...text), ["1 doc folder", "2 doc go-on"]);
  });

  test("code blocks, HTML comments and link targets are not prose", () => {
    const text = ["```text", "folder", "```", "<!-- folder", "folder -->", "[a](folder.md) <b folder>"];
    assert.deepEqual(found("docs/a.md", ...text, "A folder."), ["7 doc folder"]);
  });
});

describe("identifiers", () => {
  const names = (file: string, text: string) =>
    checkText(file, text).findings.flatMap(({ rule, text: name, line }) =>
      rule === "name" ? [`${line} ${name}`] : [],
    );

  test("are split at capitals and underscores", () => {
    assert.deepEqual(names("src/a.ts", "const a = 1;\nclass FrontDoor {\n  #letGo() {}\n  wallTime = 1;\n}\n"), [
      "2 FrontDoor",
      "3 letGo",
    ]);
    assert.deepEqual(names("native/a.c", "static int kept_child(void);\n"), ["1 kept_child"]);
  });

  test("are reported once per file", () => {
    assert.deepEqual(names("src/a.ts", "const told = 1;\nlet told = 2;\n"), ["1 told"]);
  });

  test("are not searched in comments, strings and tests", () => {
    assert.deepEqual(names("src/a.ts", '/* const told */ f("const told");\n'), []);
    assert.deepEqual(names("test/a.test.ts", "const told = 1;\n"), []);
  });
});

describe("files", () => {
  test("that are generated or of another language are not checked", () => {
    for (const file of ["docs/api.md", "PROTOCOL.md", "node_modules/a/b.ts", "package.json"])
      assert.deepEqual(found(file, "// A folder."), [], file);
  });
});

describe("pragmas", () => {
  test("cover their line and the next one", () => {
    const text = ["// A folder. prose-ok: folder -- quoted", "// A folder.", "// A folder."];
    assert.deepEqual(found("src/a.ts", ...text), ["3 comment folder"]);
  });

  test("cover the rules that they list, or all", () => {
    assert.deepEqual(found("src/a.ts", "// A folder, told. prose-ok: thing, tell -- quoted"), ["1 comment folder"]);
    assert.deepEqual(found("src/a.ts", "// A folder, told. prose-ok: all -- quoted"), []);
    assert.deepEqual(found("src/a.ts", "const told = 1; // prose-ok: name -- quoted"), []);
  });

  // Written in two parts, so that they do not cover this file.
  const pragma = "prose-ok-" + "file";

  test("cover a file", () => {
    assert.deepEqual(found("src/a.ts", "// A folder, told.", "", `// ${pragma}: folder`), ["1 comment tell"]);
  });

  test("that cover every rule of a file exempt its words", () => {
    assert.equal(checkText("docs/a.md", "Two words\n").words, 2);
    assert.equal(checkText("docs/a.md", `Two words\n<!-- ${pragma}: all -->\n`).words, 0);
  });
});
