import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LOCAL_PRINCIPAL, type Principal } from "../../../src/server/auth/principal.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { fakeClient, fakeSessions } from "../../support/servers/fake-sessions.ts";
import { memoryWire, startParams, WireClient } from "../../support/servers/raw-connection.ts";

function setup() {
  const host = new FakeHost();
  const server = new ExecServer(host);
  const connect = async (principal: Principal = LOCAL_PRINCIPAL, extensions: string[] = ["attach", "names"]) => {
    const client = new WireClient(memoryWire((connection) => server.accept(connection, principal)));
    await client.handshake({ extensions });
    return client;
  };
  return { host, connect };
}

const user = (id: string): Principal => ({ ...LOCAL_PRINCIPAL, id, role: "user" });
const named = (processId: string, name: unknown, more: object = {}) => startParams(processId, ["x"], { name, ...more });

describe("process names", () => {
  test("appear with the labels in lists and attach results, and are hidden from other clients", async () => {
    const { connect } = setup();
    const owner = await connect();
    const labels = { team: "x", "example.com/tier": "" };
    const { handle } = await owner.call("process/start", named("p", "api", { labels }));
    const list = async (client: WireClient) => {
      const { processes } = await client.call("process/list", { allSessions: true });
      assert.ok(Array.isArray(processes));
      return processes[0];
    };
    const listed = await list(owner);
    assert.deepEqual([listed.handle, listed.name, listed.labels], [handle, "api", labels]);
    const viewer = await connect();
    const attached = await viewer.call("process/attach", { handle, role: "viewer" });
    assert.deepEqual([attached.name, attached.labels], ["api", labels]);
    const codex = await list(await connect(LOCAL_PRINCIPAL, []));
    assert.deepEqual([codex.name, codex.labels], [undefined, undefined]);
  });

  test("are unique among the live processes of a principal, and the error has the handle of the holder", async () => {
    const { host, connect } = setup();
    const [one, two, other] = [await connect(user("a")), await connect(user("a")), await connect(user("b"))];
    const { handle } = await one.call("process/start", named("p", "api"));
    const error = await two.refused("process/start", named("q", "api"));
    assert.deepEqual(error, {
      code: -32600,
      message: `name \`api\` is in use by process ${handle}; end that process, or choose another name`,
      data: { reason: "nameInUse" },
    });
    await other.call("process/start", named("r", "api"));
    // A process of the same session reports its own id first, as a repeated start needs.
    assert.match((await one.refused("process/start", named("p", "api"))).message, /^process p already exists$/);
    host.process("p").exit(0);
    await two.call("process/start", named("q", "api"));
  });

  test("go to exactly one of two concurrent starts, and a failed start frees its name", async () => {
    const { host, connect } = setup();
    const clients = [await connect(), await connect(), await connect()];
    const gate = Promise.withResolvers<void>();
    host.startGate = gate.promise;
    const answers = clients.map((client, index) => client.request("process/start", named(`p${index}`, "api")));
    const losers = [await answers[1], await answers[2]];
    assert.ok(losers.every((answer) => answer?.error?.data?.reason === "nameInUse"));
    gate.reject(new Error("no such program"));
    assert.ok((await answers[0])?.error);
    host.startGate = null;
    const results = await Promise.all(
      clients.map((client, index) => client.request("process/start", named(`q${index}`, "api"))),
    );
    const winners = results.filter(({ result }) => result);
    assert.equal(winners.length, 1);
    const message = `name \`api\` is in use by process ${winners[0]?.result?.handle}; end that process, or choose another name`;
    assert.deepEqual(
      results.flatMap(({ error }) => error?.message ?? []),
      [message, message],
    );
  });

  test("are optional for persistent processes", async () => {
    const { open, start } = fakeSessions();
    const session = open(fakeClient());
    for (const processId of ["p", "q"]) await start(session, processId, { lifetime: "persistent" });
    assert.equal(session.ownProcesses().length, 2);
  });

  test("and labels are rejected if invalid, with the rule", async () => {
    const { connect } = setup();
    const client = await connect();
    const many = Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`k${index}`, ""]));
    const cases: [object, RegExp][] = [
      [{ name: "" }, /invalid name ``: expected 1 to 63 characters of a-z, 0-9/],
      [{ name: "Api" }, /invalid name `Api`/],
      [{ name: "-a" }, /the first one a letter or a digit/],
      [{ name: "a".repeat(64) }, /invalid name `a{64}`/],
      [{ name: 5 }, /invalid type: number, expected a string/],
      [{ labels: ["a=b"] }, /invalid type: sequence, expected a map/],
      [{ labels: { "": "x" } }, /invalid label key ``/],
      [{ labels: { a: 5 } }, /invalid type: number, expected a string/],
      [{ labels: { a: "x".repeat(257) } }, /label `a` is too long: 257 characters, expected at most 256/],
      [{ labels: { a: "x\ny" } }, /label `a` contains a control character/],
      [{ labels: many }, /too many labels: 33, expected at most 32/],
    ];
    for (const [more, message] of cases) {
      const error = await client.refused("process/start", startParams("p", ["x"], { ...more }));
      assert.deepEqual([error.code, message.test(error.message)], [-32602, true], error.message);
    }
    await client.start("p", ["x"], { name: `0${"._-".repeat(20)}ab`, labels: {} });
  });
});
