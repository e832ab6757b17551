import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { createContext, runInContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { browserBuild } from "../../scripts/build/build-browser.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { listen } from "../../src/server/listen/listen.ts";
import type { ListeningServer } from "../../src/server/listen/websocket-gateway.ts";

describe("the client for browsers", { timeout: 600_000 }, () => {
  let directory: string;
  let server: ExecServer;
  let listening: ListeningServer;
  let imports: string[];
  /** Names of the modules that the entry point imports statically. */
  let staticImports: string[];
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), "procwire-browser-"));
    const { metafile } = await build(browserBuild(directory));
    imports = Object.values(metafile.outputs).flatMap((output) =>
      output.imports.filter(({ external }) => external).map(({ path }) => path),
    );
    const entry = Object.entries(metafile.outputs).find(([name]) => name.endsWith("/client.js"))?.[1];
    staticImports = (entry?.imports ?? [])
      .filter(({ kind }) => kind === "import-statement")
      .map(({ path }) => basename(path));
    server = new ExecServer(createLocalHost());
    listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  });
  after(async () => {
    await listening.close();
    await server.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  });

  test("imports neither Node modules nor packages that a browser would have to fetch", async () => {
    assert.deepEqual(imports, []);
    for (const file of (await readdir(directory)).filter((name) => name.endsWith(".js"))) {
      const code = await readFile(join(directory, file), "utf8");
      assert.doesNotMatch(code, /["']node:/);
      for (const name of builtinModules) {
        assert.ok(!code.includes(`from"${name}"`), `${file} imports ${name}`);
        assert.ok(!code.includes(`require("${name}")`), `${file} requires ${name}`);
      }
    }
  });

  test("is smaller than 60 KB compressed, without the lazily loaded pattern engine", async () => {
    const first = ["client.js", ...staticImports.filter((name) => name.endsWith(".js"))];
    const sizes = await Promise.all(first.map(async (name) => gzipSync(await readFile(join(directory, name))).length));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    assert.ok(bytes < 60_000, `${bytes} bytes gzipped`);
  });

  test("drops unused modules from a bundle", async () => {
    const { outputFiles } = await build({
      stdin: {
        contents: 'export { DisconnectedError } from "./browser.ts";',
        resolveDir: new URL("../../src/client/", import.meta.url).pathname,
        loader: "ts",
      },
      bundle: true,
      minify: true,
      format: "esm",
      platform: "browser",
      write: false,
    });
    const code = outputFiles[0]?.text ?? "";
    assert.match(code, /exec-server transport disconnected/);
    assert.ok(code.length < 2000, `${code.length} characters`);
  });

  test("runs without Buffer, process and require", async () => {
    // Runs the code as a script in a realm that has only the globals of a browser.
    const script = await build({
      ...browserBuild(directory),
      splitting: false,
      format: "iife",
      globalName: "client",
      write: false,
    });
    const code = script.outputFiles.find(({ path }) => path.endsWith(".js"))?.text;
    assert.ok(code !== undefined);
    const page = createContext({ ...PAGE_GLOBALS, url: listening.url });
    assert.equal(runInContext("typeof Buffer + typeof process + typeof require", page), "undefined".repeat(3));
    runInContext(code, page);
    const result: unknown = await runInContext(
      `(async () => {
        const connected = await client.connectFromBrowser({ url });
        const { stdout, exitCode } = await client.run(
          connected.backend, ["/bin/sh", "-c", "cat; echo done; exit 3"], { input: "gr\u00fc\u00dfe ", cwd: "/" },
        );
        const child = await connected.start({
          processId: "p", argv: ["/bin/sh", "-c", "echo ready; read x"], cwd: "/", env: {}, tty: false, pipeStdin: true,
        });
        const { text } = await client.waitFor(child, /rea../);
        const { reason } = await child.wait({ until: { type: "output", pattern: "ready" } });
        await child.terminate();
        await connected.close();
        return JSON.stringify({ stdout, exitCode, text, reason });
      })()`,
      page,
    );
    assert.deepEqual(JSON.parse(String(result)), {
      stdout: "grüße done\n",
      exitCode: 3,
      text: "ready",
      reason: "matched",
    });
  });
});

/** Browser globals that the client uses. */
const PAGE_GLOBALS = {
  performance,
  AbortController,
  AbortSignal,
  atob,
  btoa,
  clearTimeout,
  crypto,
  queueMicrotask,
  setTimeout,
  TextDecoder,
  TextEncoder,
  URL,
  WebSocket,
};
