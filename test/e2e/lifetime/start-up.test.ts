import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ServeChild, scratchDirectory } from "../../support/servers/serve.ts";

/** Libraries that take 1 to 10 ms each of a start of 40 ms. Most of them also use memory as long as the server runs. */
const HEAVY = ["child_process", "crypto", "http", "net", "perf_hooks", "stream", "url", "v8", "worker_threads", "zlib"];

/**
 * At exit, writes the modules that the program loaded: packages, and the Node libraries that only some programs load.
 */
const WATCH = `
const before = new Set(process.moduleLoadList);
process.on("exit", () => {
  const loaded = process.moduleLoadList.filter((name) => !before.has(name));
  const packages = Object.keys(require.cache).filter((path) => path.includes("/node_modules/"));
  require("node:fs").writeFileSync(process.env.LOADED_FILE, [...loaded, ...packages].join("\\n"));
});`;

describe("a server that starts", { timeout: 600_000 }, () => {
  test("and answers a handshake loads none of Node's large libraries, and no package", async () => {
    using directory = scratchDirectory();
    const watch = join(directory.path, "watch.cjs");
    const loadedFile = join(directory.path, "loaded");
    writeFileSync(watch, WATCH);
    const server = new ServeChild(["--listen", "ws://127.0.0.1:0"], {
      env: { NODE_OPTIONS: `--require ${watch}`, LOADED_FILE: loadedFile },
    });
    await server.listening();
    const client = await server.connect();
    await client.handshake();
    await client.close();
    server.child.kill("SIGTERM");
    assert.deepEqual(await server.exited, { code: 0, signal: null }, server.stderr);
    const loaded = readFileSync(loadedFile, "utf8").split("\n");
    assert.ok(!loaded.includes("NativeModule internal/modules/esm/translators"), "runs the sources: npm run build");
    assert.deepEqual(
      HEAVY.filter((name) => loaded.includes(`NativeModule ${name}`)),
      [],
      loaded.join(" "),
    );
    // Tracing, tokens and screens each load their modules on first use.
    assert.deepEqual(
      loaded.filter((name) => name.includes("/node_modules/")),
      [],
    );
  });
});
