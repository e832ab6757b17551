import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServer } from "../../../src/server/exec-server.ts";
import type { ForwardService } from "../../../src/server/host-services.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";

describe("forward/watchPorts", () => {
  test("reports ports after a scan that failed", async () => {
    const host = new FakeHost();
    const scans = [
      () => Promise.reject(new Error("no descriptor is free")),
      async () => [{ port: 8080, host: "127.0.0.1", leader: 4242 }],
    ];
    const forward: ForwardService = {
      connect: () => Promise.reject(new Error("not used")),
      listen: () => Promise.reject(new Error("not used")),
      listeningPorts: () => (scans.shift() ?? (async () => []))(),
    };
    await using server = new ExecServer(Object.assign(host, { forward }), { allowForward: ["loopback"] });
    const reported: unknown[] = [];
    const connection = server.connectInProcess({
      onNotification: ({ method, params }) => {
        if (method === "forward/ports") reported.push(params);
      },
      onDisconnect: () => undefined,
    });
    await connection.call("initialize", { clientName: "test" });
    connection.initialized();
    await connection.call("process/start", { processId: "p", argv: ["x"], cwd: "file:///tmp", env: {}, tty: false });
    await connection.call("forward/watchPorts", { watch: true });
    await new Promise(setImmediate);
    await host.clock.advance(250);
    assert.deepEqual(reported, [{ ports: [{ port: 8080, host: "127.0.0.1", processId: "p" }] }]);
  });
});
