import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { sh, startParams, type WireClient } from "../../support/servers/raw-connection.ts";
import { startCli } from "../../support/servers/run-cli.ts";
import { type ServeChild, serve } from "../../support/servers/serve.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { until } from "../../support/system/until.ts";

/** The addon handles input without JavaScript where possible (direct input). No client may see a difference. */

let server: ServeChild;
before(async () => {
  server = await serve();
});
after(() => server.stop());

const hash = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

function request(client: WireClient, id: string, method: string, params: object): void {
  client.raw(JSON.stringify({ id, method, params }));
}

const write = (client: WireClient, processId: string, at: number, bytes: Buffer) =>
  request(client, `w${at}`, "process/write", {
    processId,
    writeId: `w${at}`,
    chunk: bytes.toString("base64"),
  });

describe("direct input", () => {
  test("carries the piped stdin of `procwire run`", async () => {
    const args = ["run", "--name", "piped", "--connect", server.url, "--", "sh", "-c", "cat >/dev/null; exec sleep 60"];
    const run = startCli(args, { cwd: ".", stdin: "x".repeat(1_000_000) });
    await using client = await server.connect();
    await client.handshake({ extensions: ["attach"] });
    type Listed = { processes: { handle: string; name?: string; argv: string[] }[] };
    const find = async () =>
      ((await client.call("process/list", { allSessions: true })) as Listed).processes.find(
        ({ name }) => name === "piped",
      );
    await until("all input is read", async () => {
      const tree = await client.call("process/tree", { handle: (await find())?.handle ?? "" }).catch(() => null);
      return JSON.stringify(tree).includes('"sleep","60"');
    });
    const handle = (await find())?.handle ?? "";
    await client.call("process/attach", { handle, role: "viewer", processId: "seen" });
    // Ordered input would be in the input history.
    assert.deepEqual(await client.call("process/inputs", { processId: "seen" }), { inputs: [], omitted: 0 });
    run.child.kill("SIGTERM");
    await run.ended;
  });

  test("returns when the last viewer has left", async () => {
    await using owner = await server.connect();
    await owner.handshake({ extensions: ["attach"] });
    await using viewer = await server.connect();
    await viewer.handshake({ extensions: ["attach"] });
    await owner.start("cat", ["cat"], { pipeStdin: true });
    const { processes } = (await owner.call("process/list", {})) as { processes: { handle: string }[] };
    const handle = processes[0]?.handle ?? "";
    const attach = () => viewer.call("process/attach", { handle, role: "viewer", processId: "seen" });
    const writeLine = async (line: string) => {
      assert.equal(await owner.write("cat", line, line), "accepted");
      await owner.outputContains("cat", line);
    };
    await writeLine("alone,");
    await attach();
    await writeLine("viewed,");
    await viewer.call("process/detach", { processId: "seen" });
    await writeLine("alone again,");
    await attach();
    // The input history contains ordered input only.
    const { inputs } = (await viewer.call("process/inputs", { processId: "seen" })) as { inputs: { bytes: number }[] };
    assert.deepEqual(
      inputs.map(({ bytes }) => bytes),
      ["viewed,".length],
    );
  });

  test("keeps its order with start and closeStdin that are sent without waiting, 100 times", async () => {
    await using client = await server.connect();
    await client.handshake();
    for (let run = 0; run < repetitions(100); run++) {
      const processId = `order-${run}`;
      request(client, processId, "process/start", startParams(processId, ["cat"], { pipeStdin: true }));
      const parts = Array.from({ length: 50 }, (_, at) => Buffer.from(`${at},`));
      for (const [at, part] of parts.entries()) write(client, processId, at, part);
      request(client, "close", "process/closeStdin", { processId });
      const { output } = await client.finished(processId);
      assert.equal(output, Buffer.concat(parts).toString());
    }
  });

  test("keeps its order while a process reads intermittently and the queue fills and drains", async () => {
    await using client = await server.connect();
    await client.handshake();
    const script =
      "for n in 1 2 3 4 5 6 7 8; do sleep 0.05; head -c 1500000 >&3; done 3>&1 | sha256sum; cat >/dev/null";
    for (let run = 0; run < 3; run++) {
      const processId = `slow-${run}`;
      await client.start(processId, sh(script), { pipeStdin: true });
      const parts = Array.from({ length: 1000 }, (_, at) => randomBytes(at % 7 === 0 ? 100_000 : at % 50));
      const whole = Buffer.concat(parts);
      assert.ok(whole.length > 12_000_000);
      for (const [at, part] of parts.entries()) write(client, processId, at, part);
      request(client, "close", "process/closeStdin", { processId });
      const { output } = await client.finished(processId);
      assert.equal(output.split(" ")[0], hash(whole.subarray(0, 12_000_000)));
    }
  });

  test("responds to every write once, and does not write a repeated write id again", async () => {
    await using client = await server.connect();
    await client.handshake();
    await client.start("cat", ["cat"], { pipeStdin: true });
    assert.equal(await client.write("cat", "a", "id-a"), "accepted");
    assert.equal(await client.write("cat", "b", "id-b"), "accepted");
    assert.equal(await client.write("cat", "again", "id-a"), "accepted");
    assert.deepEqual((await client.call("process/closeStdin", { processId: "cat" })).status, "accepted");
    assert.equal(await client.write("cat", "again", "id-b"), "accepted");
    assert.equal(await client.write("cat", "late", "id-c"), "stdinClosed");
    assert.equal((await client.finished("cat")).output, "ab");
  });

  test("is refused for a terminated process and for an unknown process", async () => {
    await using client = await server.connect();
    await client.handshake();
    await client.start("ends", sh("trap '' TERM; echo ready; cat"), { pipeStdin: true });
    await client.outputContains("ends", "ready");
    assert.equal(await client.write("ends", "x", "known"), "accepted");
    const ended = client.request("process/terminate", {
      processId: "ends",
      mode: { type: "graceful", timeoutMs: 60_000 },
    });
    const refused = await client.refused("process/write", {
      processId: "ends",
      writeId: "new",
      chunk: "eA==",
    });
    assert.deepEqual(refused, { code: -32603, message: "failed to write to process stdin" });
    assert.equal(await client.write("ends", "x", "known"), "accepted");
    await client.call("process/terminate", { processId: "ends" });
    await ended;
    assert.equal(await client.write("nobody", "x", "w"), "unknownProcess");
  });

  test("follows the session to its new connection, and waits for `initialized` there", async () => {
    const first = await server.connect();
    await first.handshake();
    await first.start("cat", ["cat"], { pipeStdin: true });
    assert.equal(await first.write("cat", "one,", "w1"), "accepted");
    await first.outputContains("cat", "one,");

    await using second = await server.connect();
    await second.call("initialize", {
      clientName: "test",
      resumeSessionId: first.sessionId,
      takeOver: true,
      extensions: ["takeOver"],
    });
    const early = await second.refused("process/write", { processId: "cat", writeId: "w2", chunk: "eA==" });
    assert.match(early.message, /client must send initialized/);
    second.notify("initialized", {});
    assert.equal(await second.write("cat", "again,", "w1"), "accepted");
    assert.equal(await second.write("cat", "two,", "w3"), "accepted");
    await second.outputContains("cat", "two,");
    await second.call("process/closeStdin", { processId: "cat" });
    assert.equal((await second.finished("cat")).output, "two,");
    await first.ended();
  });
});
