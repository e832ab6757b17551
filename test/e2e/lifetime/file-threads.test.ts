import assert from "node:assert/strict";
import { mkdirSync, renameSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { WireClient } from "../../support/servers/raw-connection.ts";
import { makePipe, ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { until } from "../../support/system/until.ts";

/** Number of threads that Node uses for file requests. */
const THREADS = 4;
const GIB = 1024 ** 3;

/** Asserts that the server responds to a file request. */
async function assertFilesServed(client: WireClient): Promise<void> {
  assert.equal((await client.call("fs/getMetadata", { path: "file:///tmp" })).isDirectory, true);
}

describe("a file request never blocks a thread forever", { timeout: 600_000 }, () => {
  test("copies of files that shrink meanwhile end where the files end", async () => {
    using directory = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const copies = Array.from({ length: THREADS }, (_, number) => {
      const source = join(directory.path, `from-${number}`);
      const destination = join(directory.path, `to-${number}`);
      writeFileSync(source, "");
      truncateSync(source, 16 * GIB);
      const answer = client.request("fs/copy", {
        sourcePath: `file://${source}`,
        destinationPath: `file://${destination}`,
        recursive: false,
      });
      return { source, destination, answer };
    });
    for (const { source, destination } of copies) {
      await until("the first bytes of the copy", () => sizeOf(destination) > 0);
      truncateSync(source, 1);
    }
    for (const { source, destination, answer } of copies) {
      assert.deepEqual((await answer).result, {});
      assert.ok(sizeOf(destination) < 16 * GIB, "it was not cut in the middle");
      assert.equal(sizeOf(source), 1);
    }
    await assertFilesServed(client);
    await client.close();
    assert.equal((await server.stop()).code, 0);
  });

  test("a pipe that replaces a file between check and open does not block the open", async () => {
    using directory = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const path = (name: string) => join(directory.path, name);
    const uri = (name: string) => `file://${path(name)}`;
    for (const name of ["swapped", "target"]) {
      writeFileSync(path(`${name}.file`), "text");
      writeFileSync(path(name), "text");
      makePipe(path(`${name}.pipe`));
    }
    const requests: [method: string, params: Record<string, unknown>][] = [
      ["fs/copy", { sourcePath: uri("swapped"), destinationPath: uri("copy"), recursive: false }],
      ["fs/copy", { sourcePath: uri("swapped.file"), destinationPath: uri("target"), recursive: false }],
      ["fs/readFile", { path: uri("swapped") }],
      ["fs/readFile", { path: uri("swapped"), followSymlinks: false }],
      ["fs/writeFile", { path: uri("target"), dataBase64: "dGV4dA==" }],
    ];
    let swapping = true;
    const swaps = (async () => {
      for (let swap = 0; swapping; swap++) {
        for (const name of ["swapped", "target"]) {
          replaceFile(path(name), swap % 2 === 0 ? "pipe" : "file");
        }
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    for (let round = 0; round < repetitions(100); round++) {
      const answers = requests.map(([method, params]) => client.request(method, params));
      for (const { result, error } of await Promise.all(answers)) {
        if (!result) assert.match(error?.message ?? "", /only supports regular|not a (regular )?file|os error/);
      }
    }
    swapping = false;
    await swaps;
    await assertFilesServed(client);
    await client.close();
  });

  test("a directory with pipes, sockets and devices in it is copied without them", async () => {
    using directory = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const tree = join(directory.path, "tree");
    mkdirSync(tree);
    makePipe(join(tree, "pipe"));
    writeFileSync(join(tree, "file"), "text");
    const copy = `file://${directory.path}/copy`;
    await client.call("fs/copy", { sourcePath: `file://${tree}`, destinationPath: copy, recursive: true });
    const { entries } = await client.call("fs/readDirectory", { path: copy });
    assert.deepEqual(entries, [{ fileName: "file", isDirectory: false, isFile: true }]);
    for (const path of ["/dev/zero", "/dev/tty", join(tree, "pipe")]) {
      assert.match((await client.refused("fs/readFile", { path: `file://${path}` })).message, /not a file/);
      const opened = await client.refused("fs/open", { handleId: "h", path: `file://${path}` });
      assert.match(opened.message, /not a file/);
    }
    await client.close();
  });

  test("a file without a known size is copied to its end", async () => {
    using directory = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const copy = join(directory.path, "version");
    await client.call("fs/copy", {
      sourcePath: "file:///proc/version",
      destinationPath: `file://${copy}`,
      recursive: false,
    });
    assert.ok(sizeOf(copy) > 0);
    await client.close();
  });
});

describe("a server whose file threads all hang in the system", { timeout: 600_000 }, () => {
  const hanging = async (directory: string, ...args: string[]) => {
    const pipe = join(directory, "pipe");
    makePipe(pipe);
    const script = join(directory, "hang.cjs");
    const opening = `for (let n = 0; n < ${THREADS}; n++) require("fs").open(${JSON.stringify(pipe)}, "r", () => {});`;
    // NODE_OPTIONS also applies to Node programs that the server starts; only the server itself may hang.
    writeFileSync(script, `if (process.argv.includes("serve")) { ${opening} }`);
    const server = new ServeChild(["--listen", "ws://127.0.0.1:0", ...args], {
      env: { NODE_OPTIONS: `--require ${script}` },
    });
    return server.listening();
  };

  test("still serves processes, and exits on a signal", async () => {
    using directory = scratchDirectory();
    await using server = await hanging(directory.path);
    const client = await server.connect();
    await client.handshake();
    void client.request("fs/getMetadata", { path: "file:///tmp" }).catch(() => undefined);
    void client.request("fs/open", { handleId: "h", path: "file:///etc/passwd" }).catch(() => undefined);
    await client.start("p", ["/bin/cat"], { pipeStdin: true });
    await client.write("p", "served\n");
    await client.outputContains("p", "served");
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
  });

  test("exits at once on a second signal", async () => {
    using directory = scratchDirectory();
    await using server = await hanging(directory.path, "--shutdown-grace", "600");
    const client = await server.connect();
    await client.handshake();
    void client.request("fs/getMetadata", { path: "file:///tmp" }).catch(() => undefined);
    await client.start("p", ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]);
    await client.outputContains("p", "up");
    // The server ignores a second signal right after the first, so the test repeats the signal.
    await until("the server to exit", () => {
      server.child.kill("SIGTERM");
      return server.child.exitCode !== null || server.child.signalCode !== null;
    });
    assert.deepEqual(await server.exited, { code: 0, signal: null });
  });
});

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** Atomically replaces the file at `path`, if any, with a new file or pipe. */
function replaceFile(path: string, kind: "file" | "pipe"): void {
  const spare = `${path}.${kind}`;
  renameSync(path, `${path}.${kind === "file" ? "pipe" : "file"}`);
  renameSync(spare, path);
}
