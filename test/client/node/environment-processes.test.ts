import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Environment, ExecServerError } from "../../../src/index.ts";
import { type ServeChild, serve } from "../../support/servers/serve.ts";

const TIMEOUT = { timeout: 600_000 };
let server: ServeChild;
before(async () => {
  server = await serve();
});
after(async () => {
  await server.stop();
});

for (const [name, target] of [
  ["the local host", () => null],
  ["a server", () => server.url],
] as const) {
  describe(`processes of an environment on ${name}`, TIMEOUT, () => {
    let environment: Environment;
    before(async () => {
      environment = await Environment.create(target());
    });
    after(() => environment.close());

    test("have their kernel process id when spawn resolves", async () => {
      await using process = await environment.spawn(["sh", "-c", "echo $$; read line"]);
      const { pid } = process;
      const { text } = await process.waitFor(/\d+/);
      assert.equal(pid, Number(text));
    });

    test("receive SIGTERM or the named signal from kill, which reports whether they were running", async () => {
      await using process = await environment.spawn([
        "sh",
        "-c",
        "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done",
      ]);
      await process.waitFor("ready");
      await assert.rejects(process.kill("SIGNOPE"), { code: "EINVAL" });
      assert.equal(await process.kill("SIGUSR1"), true);
      await process.waitFor("usr1");
      assert.equal(await process.kill(), true);
      const { exitReason, signal } = await process.wait();
      assert.deepEqual([exitReason, signal], ["signaled", "SIGTERM"]);
      for await (const _event of process.events());
      assert.equal(await process.kill(), false);
    });

    test("are listed while they run", async () => {
      await using process = await environment.spawn("cat", { processId: `listed on ${name}` });
      const listing = (await environment.processes()).find(({ processId }) => processId === process.processId);
      assert.deepEqual([listing?.argv, listing?.pid, listing?.running], [["cat"], process.pid, true]);
      assert.equal(listing?.handle ?? null, process.handle);
      const own = await environment.processes({ allSessions: false });
      assert.ok(own.some(({ processId }) => processId === process.processId));
    });

    test("name the program and the directory in the error of a low-level start", async () => {
      const start = (argv: string[], cwd: string) =>
        environment.getExecBackend().start({ processId: "x", argv, cwd, env: {}, tty: false });
      const argv = ["/no/such/program", "x"];
      await assert.rejects(start(argv, "/"), { code: "ENOENT", argv, program: "/no/such/program", cwd: "/" });
      await assert.rejects(start(["true"], "/no/such"), { code: "ENOENT", program: "true", cwd: "/no/such" });
    });
  });
}

describe("lifetimes of an environment's processes", TIMEOUT, () => {
  test("let a process of lifetime server outlive its environment, to be attached by its handle", async () => {
    let handle: string | null = null;
    {
      await using first = await Environment.create(server.url);
      const process = await first.spawn(["sh", "-c", "echo started; read line; echo got $line"], {
        lifetime: "server",
      });
      await process.waitFor("started");
      handle = process.handle;
      await process.detach();
    }
    assert.ok(handle !== null);
    await using second = await Environment.create(server.url);
    const listing = (await second.processes()).find((process) => process.handle === handle);
    assert.deepEqual([listing?.running, listing?.lifetime], [true, "server"]);
    assert.deepEqual(await second.processes({ allSessions: false }), []);
    await using attached = await second.attach(handle, { role: "driver" });
    await attached.write("hello\n");
    const { match } = await attached.wait({ until: { type: "output", pattern: "got hello" } });
    assert.equal(match, "got hello");
    assert.ok((await attached.wait()).exitCode === 0);
  });

  test("require a server: a local environment has no handles and no other lifetimes", async () => {
    await using environment = await Environment.create(null);
    await assert.rejects(environment.spawn("cat", { lifetime: "server" }), {
      code: "EINVAL",
      message: "lifetime `server`: not supported by a local backend; requires procwire serve",
    });
    await using process = await environment.spawn("cat", { lifetime: "session" });
    assert.equal(process.handle, null);
    for (const call of [environment.attach("k3v7q2mfa5zt"), process.detach()])
      await assert.rejects(call, (error: unknown) => error instanceof ExecServerError && error.code === "UNSUPPORTED");
    await using remote = await Environment.create(server.url);
    await assert.rejects(remote.spawn("cat", { lifetime: "persistent" }), { code: "EINVAL" });
    await assert.rejects(remote.attach("unknown"), { code: "EINVAL", reason: "unknownHandle" });
  });
});
