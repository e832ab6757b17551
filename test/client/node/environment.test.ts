import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Environment, type LocalEnvironmentServices } from "../../../src/client/node/environment.ts";
import { parseEnvironmentsToml, readEnvironmentsToml } from "../../../src/client/node/environments-toml.ts";
import { run } from "../../../src/exec/run/run-program.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { SERVE } from "../../contract/backends.ts";

const TIMEOUT = { timeout: 600_000 };

function localServices(): LocalEnvironmentServices {
  const host = createLocalHost();
  const server = new ExecServer(host);
  return { backend: backendOf(host), server, close: () => server.close() };
}

function backendOf(host: ReturnType<typeof createLocalHost>): LocalEnvironmentServices["backend"] {
  return { start: (params) => host.backend.start(params), list: async () => [] };
}

const kinds: [string, () => Promise<{ environment: Environment; close: () => Promise<void> }>][] = [
  [
    "local",
    async () => {
      const environment = await Environment.create(null, { local: localServices });
      return { environment, close: () => environment.close() };
    },
  ],
  [
    "a URL",
    async () => {
      const server = new ExecServer(createLocalHost());
      const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
      const environment = await Environment.create(listening.url);
      const close = async () => {
        await environment.close();
        await listening.close();
        await server.close();
      };
      return { environment, close };
    },
  ],
  [
    "a program",
    async () => {
      const environment = await Environment.create(SERVE);
      return { environment, close: () => environment.close() };
    },
  ],
];

for (const [name, open] of kinds) {
  describe(`an environment: ${name}`, TIMEOUT, () => {
    test("rejects each call after it was closed with a DisconnectedError", async () => {
      const { environment, close } = await open();
      await environment.spawn("cat");
      await Promise.all([environment.close(), environment.close()]);
      const calls: Record<string, () => Promise<unknown>> = {
        run: () => environment.run("true"),
        spawn: () => environment.spawn("cat"),
        processes: () => environment.processes(),
        info: () => environment.info(),
        files: () => environment.files.exists("/"),
        http: () => environment.http.request({ url: "http://127.0.0.1:1/" }),
      };
      const message = "exec-server transport disconnected: the client was closed";
      for (const [name, call] of Object.entries(calls))
        await assert.rejects(call(), { name: "DisconnectedError", message }, name);
      await close();
    });

    test("runs processes, reads and writes files, and describes itself", async () => {
      const { environment, close } = await open();
      const directory = await mkdtemp(join(tmpdir(), "procwire-environment-"));
      try {
        const { stdout } = await run(environment.getExecBackend(), ["pwd"], { cwd: directory });
        assert.equal(stdout.trim(), directory);
        const { files } = environment;
        const file = join(directory, "ä b.txt");
        await files.writeFile(file, "grüße");
        assert.equal(await files.readText(file), "grüße");
        assert.equal(await files.readText(`file://${encodeURI(file)}`), "grüße");
        assert.equal((await files.getMetadata(file)).size, 7);
        assert.equal(await files.exists(join(directory, "none")), false);
        assert.equal(await files.canonicalize(join(directory, ".", "ä b.txt")), file);
        assert.deepEqual(await files.readDirectory(directory), [
          { fileName: "ä b.txt", isDirectory: false, isFile: true },
        ]);
        await files.createDirectory(join(directory, "a", "b"), { recursive: true });
        await files.copy(file, join(directory, "a", "b", "copy"));
        const walk = await files.walk(directory);
        assert.ok(walk.entries.some(({ path }) => path === join(directory, "a", "b", "copy")));
        await files.remove(join(directory, "a"), { recursive: true });
        assert.equal(await files.exists(join(directory, "a")), false);
        await assert.rejects(files.readFile(join(directory, "none")), { code: "ENOENT", rpcCode: -32004 });
        assert.ok((await environment.info()).shell.path.startsWith("/"));
      } finally {
        await rm(directory, { recursive: true, force: true, maxRetries: 10 });
        await close();
      }
    });

    test("writes a file that does not fit into one message, and reads it in blocks", async () => {
      const { environment, close } = await open();
      const directory = await mkdtemp(join(tmpdir(), "procwire-environment-"));
      try {
        const data = new Uint8Array(9_000_000).map((_, at) => at % 251);
        const path = join(directory, "large");
        await environment.files.writeFile(path, data);
        await using file = await environment.files.open(path);
        const { chunk, eof } = await file.read(8_999_990, 100);
        assert.deepEqual([...chunk], [...data.subarray(8_999_990)]);
        assert.equal(eof, true);
      } finally {
        await rm(directory, { recursive: true, force: true, maxRetries: 10 });
        await close();
      }
    });

    test("waits for a path to appear", async () => {
      const { environment, close } = await open();
      const directory = await mkdtemp(join(tmpdir(), "procwire-environment-"));
      try {
        const path = join(directory, "later");
        const appeared = environment.files.waitForPath(path);
        await writeFile(path, "");
        await appeared;
        await environment.files.waitForPath([path]);
        const controller = new AbortController();
        const never = environment.files.waitForPath(join(directory, "never"), { signal: controller.signal });
        controller.abort(new Error("enough"));
        await assert.rejects(never, { message: "enough" });
      } finally {
        await rm(directory, { recursive: true, force: true, maxRetries: 10 });
        await close();
      }
    });

    test("makes HTTP requests from its host, buffered and streamed", async () => {
      const { environment, close } = await open();
      const web = createServer((request, response) => {
        response.setHeader("x-method", request.method ?? "");
        request.pipe(response);
      });
      await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", () => resolve()));
      const url = `http://127.0.0.1:${(web.address() as AddressInfo).port}/`;
      try {
        const whole = await environment.http.request({ url, method: "POST", body: "hello" });
        assert.equal(whole.status, 200);
        assert.equal(new TextDecoder().decode(whole.body), "hello");
        assert.ok(whole.headers.some(({ name: header, value }) => header === "x-method" && value === "POST"));
        const streamed = await environment.http.stream({
          url,
          method: "POST",
          body: new Uint8Array(300_000),
        });
        let count = 0;
        for await (const piece of streamed.body) count += piece.length;
        assert.equal(count, 300_000);
      } finally {
        web.closeAllConnections();
        await new Promise((resolve) => web.close(resolve));
        await close();
      }
    });
  });
}

describe("choosing an environment", () => {
  test("rejects a local environment without local services", async () => {
    await assert.rejects(Environment.create(null), /cannot create a local environment: `local` is not set/);
  });

  test("reads the environments.toml of Codex", async () => {
    const directory = await mkdtemp(join(tmpdir(), "procwire-toml-"));
    try {
      const path = join(directory, "environments.toml");
      await writeFile(
        path,
        [
          'default = "box"',
          "[[environments]]",
          'id = "box"',
          'url = " ws://127.0.0.1:8765 "',
          "connect_timeout_sec = 1.5",
          "[[environments]]",
          'id = "ssh-dev"',
          'program = "ssh"',
          'args = ["dev", "procwire serve"]',
          'cwd = "work"',
        ].join("\n"),
      );
      assert.deepEqual(await readEnvironmentsToml(path), {
        defaultId: "box",
        environments: [
          { id: "local", target: null },
          { id: "box", target: { url: "ws://127.0.0.1:8765" }, connectTimeoutMs: 1500 },
          {
            id: "ssh-dev",
            target: { program: "ssh", args: ["dev", "procwire serve"], cwd: join(directory, "work") },
          },
        ],
      });
    } finally {
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });

  test("rejects an invalid environments.toml", () => {
    const wrong: [string, RegExp][] = [
      ['[[environments]]\nid = "a"', /must set exactly one of url or program/],
      ['[[environments]]\nid = "a"\nurl = "ws://x"\nprogram = "y"', /must set exactly one of url or program/],
      ['[[environments]]\nid = "a"\nurl = "http://x"', /must use ws:\/\/ or wss:\/\//],
      ['[[environments]]\nid = "a"\nurl = "ws://x"\nargs = []', /require program/],
      ['[[environments]]\nid = "local"\nurl = "ws://x"', /is reserved/],
      ['[[environments]]\nid = "a b"\nurl = "ws://x"', /must be at most 64 ASCII/],
      ['default = "nowhere"', /default environment `nowhere` is not configured/],
      ['[[environments]]\nurl = "ws://x"', /missing field `id`/],
    ];
    for (const [text, problem] of wrong) assert.throws(() => parseEnvironmentsToml(text, "/"), problem);
  });

  test("has no default if the file says none", () => {
    assert.equal(parseEnvironmentsToml('default = "none"', "/").defaultId, null);
    assert.equal(parseEnvironmentsToml("include_local = false", "/").defaultId, null);
    assert.equal(parseEnvironmentsToml("", "/").defaultId, "local");
  });
});
