/** Terminal queries of a process whose client claims the queries that its own terminal handles. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { memoryWire, WireClient } from "../../support/servers/raw-connection.ts";
import { until } from "../../support/system/until.ts";

function setup() {
  const host = new FakeHost({ retainedBytes: 1000 });
  const server = new ExecServer(host, { retainedOutputBytes: 1000 });
  const ready = async (params: Record<string, unknown> = {}) => {
    const client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake({ extensions: ["attach", "queryClaims"], ...params });
    return client;
  };
  const started = async () => {
    const owner = await ready();
    const { handle } = await owner.start("p", ["x"], { tty: true, terminalQueries: "claimed" });
    return { owner, handle: String(handle), process: host.process("p") };
  };
  return { host, ready, started };
}

const claim = async (client: WireClient, seq: number) =>
  (await client.call("process/claimQueries", { processId: "p", seq })).granted;
const type = (client: WireClient, text: string) =>
  client.request("process/write", { processId: "p", chunk: Buffer.from(text).toString("base64") });

describe("claimed terminal queries", () => {
  test("belong to the client while it is connected, and to the server while it is not", async () => {
    const { ready, started } = setup();
    const { owner, process } = await started();
    process.print("asked");
    assert.equal(await claim(owner, 1), true);
    assert.equal(process.answersQueries, false);
    process.print("not claimed when the connection goes");
    void owner.close();
    await until("the server has noticed", () => process.answersQueries);
    process.print("asked meanwhile");
    const again = await ready({ resumeSessionId: owner.sessionId, takeOverFrom: "1" });
    assert.deepEqual(process.answered, [{ afterSeq: 1, throughSeq: 2 }]);
    assert.equal(process.answersQueries, false);
    assert.deepEqual([await claim(again, 2), await claim(again, 3)], [false, false]);
    process.print("asked later");
    assert.equal(await claim(again, 4), true);
  });

  test("can be claimed again with the same result after a lost connection", async () => {
    const { ready, started } = setup();
    const { owner, process } = await started();
    process.print("asked");
    await claim(owner, 1);
    void owner.close();
    await until("the server has noticed", () => process.answersQueries);
    process.print("asked meanwhile");
    const again = await ready({ resumeSessionId: owner.sessionId, takeOverFrom: "1" });
    assert.deepEqual([await claim(again, 1), await claim(again, 2)], [true, false]);
  });

  test("pass to the server after a takeover, unless the previous client has replied", async () => {
    const { ready, started } = setup();
    const { owner, process } = await started();
    process.print("claimed and answered");
    await claim(owner, 1);
    await type(owner, "answer");
    process.print("claimed");
    await claim(owner, 2);
    process.print("neither");
    const other = await ready({ resumeSessionId: owner.sessionId, takeOver: true });
    assert.deepEqual(process.answered, [
      { afterSeq: 1, throughSeq: 2 },
      { afterSeq: 2, throughSeq: 3 },
    ]);
    assert.equal(process.answersQueries, false);
    assert.deepEqual([await claim(other, 2), await claim(other, 3)], [false, false]);
    process.print("new");
    assert.equal(await claim(other, 4), true);
  });

  test("can be claimed only by the session that started the process with `claimed`", async () => {
    const { ready, started } = setup();
    const { owner, handle } = await started();
    await owner.start("q", ["x"], { tty: true });
    const other = await ready();
    await other.call("process/attach", { handle, role: "driver", processId: "p" });
    for (const [client, processId] of [
      [owner, "q"],
      [other, "p"],
    ] as const)
      assert.match(
        (await client.refused("process/claimQueries", { processId, seq: 1 })).message,
        /was not started by this session with terminalQueries "claimed"/,
      );
  });

  test("pass to the server permanently when the owner releases the process", async () => {
    const { host, ready } = setup();
    const owner = await ready();
    const params = { tty: true, terminalQueries: "claimed", lifetime: "server" };
    await owner.start("p", ["x"], params);
    assert.equal(host.process("p").answersQueries, false);
    await owner.call("process/detach", { processId: "p" });
    assert.equal(host.process("p").answersQueries, true);
  });
});
