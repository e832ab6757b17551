import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { CommandError, Environment, ExecServerError } from "../../../src/index.ts";
import { type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const TIMEOUT = { timeout: 600_000 };
let server: ServeChild;
before(async () => {
  server = await serve();
});
after(async () => {
  await server.stop();
});

const failsWith = (expected: Partial<ExecServerError>) => (error: unknown) => {
  assert.ok(error instanceof ExecServerError, String(error));
  for (const [name, value] of Object.entries(expected))
    assert.deepEqual(Reflect.get(error, name), value, `${name} of ${error.message}`);
  return true;
};

for (const [name, target] of [
  ["this machine", () => null],
  ["a server", () => server.url],
] as const) {
  describe(`environment commands on ${name}`, TIMEOUT, () => {
    let environment: Environment;
    before(async () => {
      environment = await Environment.create(target());
    });
    after(() => environment.close());

    test("runs an executable by name, with or without arguments", async () => {
      assert.equal((await environment.run("true")).exitCode, 0);
      assert.equal((await environment.run(["echo", "a b", "c"])).stdout, "a b c\n");
    });

    test("accepts process.env as the environment, and text or bytes as input", async () => {
      const script = ["/bin/sh", "-c", 'cat; echo "$GREETING"'];
      const env = { ...process.env, GREETING: "hello", MISSING: undefined };
      assert.equal((await environment.run(script, { env, input: "in\n" })).stdout, "in\nhello\n");
      const input = new TextEncoder().encode("bytes\n");
      assert.equal((await environment.run("cat", { input, env: process.env })).stdout, "bytes\n");
    });

    test("removes its abort listener when a spawned process has ended", async () => {
      const { signal } = new AbortController();
      await using process = await environment.spawn("true", { signal });
      await process.waitFor(/$/).catch(() => undefined);
      await until("the listener is removed", () => getEventListeners(signal, "abort").length === 0);
    });

    test("returns output as bytes with encoding buffer", async () => {
      const { stdout } = await environment.run(["printf", "\\377\\000"], { encoding: "buffer" });
      assert.deepEqual([...stdout], [0xff, 0]);
    });

    test("rejects with the output if a command fails, or resolves with reject: false", async () => {
      const script = ["/bin/sh", "-c", "echo out; echo broken >&2; exit 3"];
      await assert.rejects(environment.run(script), (error: unknown) => {
        assert.ok(error instanceof CommandError && error instanceof ExecServerError);
        assert.deepEqual([error.code, error.exitCode, error.signal], ["EXIT", 3, null]);
        assert.deepEqual([error.stdout, error.stderr, error.argv], ["out\n", "broken\n", script]);
        assert.match(error.message, /^command failed with exit code 3: \/bin\/sh -c .*\nbroken$/s);
        assert.match(error.stack ?? "", /environment-commands\.test\.ts/);
        return true;
      });
      assert.equal((await environment.run(script, { reject: false })).exitCode, 3);
      await assert.rejects(
        environment.run(["/bin/sh", "-c", "kill -9 $$"]),
        failsWith({ code: "SIGNAL", message: "command was terminated by SIGKILL: /bin/sh -c kill -9 $$" }),
      );
      await assert.rejects(environment.run(["sleep", "100"], { timeoutMs: 50 }), failsWith({ code: "TIMEOUT" }));
    });

    test("distinguishes a missing executable, shell, interpreter, directory, file and permission", async () => {
      using directory = scratchDirectory();
      const script = join(directory.path, "script");
      await writeFile(script, "#!/no/such/interpreter\n");
      await chmod(script, 0o755);
      const missing = join(directory.path, "missing");
      await assert.rejects(
        environment.files.readText(missing),
        failsWith({
          ...{ code: "ENOENT", path: missing, method: "fs/readFile", rpcCode: -32004, argv: undefined },
          message: `no such file or directory: ${missing}`,
        }),
      );
      const plain = join(directory.path, "plain");
      await writeFile(plain, "#!/bin/sh\n");
      await chmod(plain, 0o644);
      for (const call of ["run", "spawn"] as const) {
        await assert.rejects(
          environment[call]("no-such-program"),
          failsWith({ code: "ENOENT", message: "no such program: `no-such-program`", path: undefined }),
        );
        await assert.rejects(
          environment[call](["/bin/nosh", "-lc", "true"]),
          failsWith({ code: "ENOENT", message: "no such shell: `/bin/nosh`", path: "/bin/nosh" }),
        );
        await assert.rejects(
          environment[call](script),
          failsWith({
            code: "ENOENT",
            message: `the interpreter of \`${script}\` was not found`,
            path: script,
          }),
        );
        await assert.rejects(
          environment[call]("true", { cwd: plain }),
          failsWith({
            code: "ENOTDIR",
            message: `cannot start \`true\` in ${plain}: it is not a directory`,
            path: plain,
          }),
        );
        await assert.rejects(
          environment[call]("true", { cwd: "/no/such/place" }),
          failsWith({
            code: "ENOENT",
            message: "cannot start `true` in /no/such/place: there is no such directory",
            path: "/no/such/place",
            method: "process/start",
            rpcCode: -32603,
          }),
        );
        await assert.rejects(environment[call](plain), failsWith({ code: "EACCES", path: plain, argv: [plain] }));
        await assert.rejects(environment[call]([]), failsWith({ code: "EINVAL" }));
      }
    });

    test("reads a spawned process by lines, by pattern, and as Node and web streams", async () => {
      const script = "echo one; read x; echo got $x; echo err >&2";
      await using process = await environment.spawn(["/bin/sh", "-c", script]);
      await process.waitFor(/on(e)/);
      await process.write("two\n");
      const readLines = async () => {
        const seen: string[] = [];
        for await (const line of process.lines()) seen.push(line);
        return seen;
      };
      const [lines, node, web, err] = await Promise.all([
        readLines(),
        text(process.readable()),
        new Response(process.readableStream()).text(),
        buffer(process.readable({ stream: "stderr" })),
      ]);
      assert.deepEqual(lines, ["one", "got two"]);
      assert.equal(node, "one\ngot two\n");
      assert.equal(web, "one\ngot two\n");
      assert.equal(err.toString(), "err\n");
      assert.equal((await process.wait()).exitCode, 0);
    });

    test("terminates the process when the signal aborts", async () => {
      const reason = new Error("enough");
      const controller = new AbortController();
      await using process = await environment.spawn(["sleep", "100"], { signal: controller.signal });
      const running = environment.run(["sleep", "100"], { signal: controller.signal });
      running.catch(() => undefined);
      controller.abort(reason);
      assert.equal((await process.wait()).signal, "SIGKILL");
      await assert.rejects(running, reason);
      await assert.rejects(environment.spawn("true", { signal: controller.signal }), reason);
    });

    test("rejects starts after it is closed", async () => {
      const own = await Environment.create(target());
      await own.close();
      await assert.rejects(own.run("true"), ExecServerError);
    });
  });
}

describe("a Node process that only waits for a local path", TIMEOUT, () => {
  test("stays alive until the path exists", async () => {
    using directory = scratchDirectory();
    const path = join(directory.path, "later");
    const script = `
      import { Environment } from ${JSON.stringify(new URL("../../../src/index.ts", import.meta.url).href)};
      const environment = await Environment.create(null);
      const waiting = environment.files.waitForPath(${JSON.stringify(path)});
      setTimeout(() => console.log("waiting"), 200).unref();
      process.on("beforeExit", () => console.log("nothing keeps it alive"));
      await waiting;
      console.log("there");
      await environment.close();
      process.exit();
    `;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const exited = once(child, "exit");
    let stdout = "";
    child.stdout.setEncoding("utf8").on("data", (part: string) => {
      stdout += part;
    });
    await until("a sign of it", () => stdout !== "", exited);
    await writeFile(path, "");
    const [exitCode] = await exited;
    assert.deepEqual({ exitCode, stdout }, { exitCode: 0, stdout: "waiting\nthere\n" });
  });
});
