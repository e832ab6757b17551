import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { clientTarball, tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { InstalledProject } from "./installed-project.ts";

const tools = resolve("prebuild/node_modules");

function tool(path: string, ...args: string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(tools, path), ...args], {
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  return { status, output: `${stdout}${stderr}` };
}

describe("the packed packages", () => {
  const packed = [clientTarball(), ...[null, ...PLATFORMS].map(tarball)];
  for (const path of packed) {
    test(`pass publint: ${basename(path)}`, () => {
      const { status, output } = tool("publint/src/cli.js", "run", path, "--strict");
      assert.ok(status === 0 && /All good!/.test(output), output);
    });
  }

  test("have types that fit the code under every supported module resolution", () => {
    // An ES module only: CommonJS programs of Node 24 can still load it with `require`.
    const { status, output } = tool(
      "@arethetypeswrong/cli/dist/index.js",
      ...[tarball(null), "--profile", "esm-only", "--no-color"],
    );
    assert.equal(status, 0, output);
  });
});

describe("a TypeScript 5.4 project", () => {
  let project: InstalledProject;
  before(async () => {
    project = await InstalledProject.install({ npmArgs: ["--omit=optional"] });
    // The types of Node that this repository uses.
    for (const name of ["@types/node", "undici-types"]) {
      mkdirSync(dirname(project.file(name)), { recursive: true });
      symlinkSync(resolve("node_modules", name), project.file(name));
    }
  });
  after(() => project[Symbol.asyncDispose]());

  /** Returns the compiler's messages. It checks every declaration and skips nothing. */
  function compile(source: string, options: Record<string, unknown>): string {
    const compilerOptions = {
      ...{ strict: true, noEmit: true, skipLibCheck: false, target: "es2022", types: [] },
      ...options,
    };
    writeFileSync(join(project.path, "main.ts"), source);
    writeFileSync(join(project.path, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["main.ts"] }));
    const { version } = JSON.parse(readFileSync(join(tools, "typescript/package.json"), "utf8"));
    assert.match(version, /^5\.4\./);
    return tool("typescript/bin/tsc", "-p", project.path).output;
  }

  /** Errors in files of the package itself; errors in other packages do not count. */
  const ours = (output: string) =>
    output.split("\n").filter((line) => /node_modules\/procwire\/|^main\.ts|\/main\.ts/.test(line));

  test("compiles a program that uses the library", () => {
    const source = `
      import { Environment, type RunResult } from "procwire";
      const environment = await Environment.create("ws://127.0.0.1:7070");
      const result: RunResult = await environment.run(["uname", "-a"]);
      const child = await environment.spawn(["cat"]);
      for await (const line of child.lines()) console.log(line, result.stdout);
    `;
    const lib = ["es2022", "esnext.disposable"];
    assert.deepEqual(ours(compile(source, { module: "nodenext", lib, types: ["node"] })), []);
  });

  test("compiles a page that uses the client, without the types of Node", () => {
    const source = `
      import { connectFromBrowser } from "procwire/client";
      const client = await connectFromBrowser({ url: "ws://127.0.0.1:7070" });
      document.title = client.sessionId ?? "";
    `;
    const lib = ["es2022", "esnext.disposable", "dom"];
    assert.deepEqual(ours(compile(source, { module: "esnext", moduleResolution: "bundler", lib })), []);
  });
});
