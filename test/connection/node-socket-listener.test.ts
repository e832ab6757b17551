import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { nodeListener } from "../../src/connection/node-socket-listener.ts";

describe("nodeListener", () => {
  test("continues after a connection that the system did not accept", async (t) => {
    const createServer = t.mock.method(process.getBuiltinModule("node:net"), "createServer");
    const listener = await nodeListener(nodeByteCodec)({ host: "127.0.0.1", port: 0 }, (socket) => socket.destroy());
    t.after(() => listener.close());
    const server = createServer.mock.calls[0]?.result ?? assert.fail();
    server.emit("error", Object.assign(new Error("accept ENFILE"), { code: "ENFILE" }));
    assert.equal(server.listening, true);
  });

  test("rejects for an address that is in use", async (t) => {
    const listenAt = nodeListener(nodeByteCodec);
    const listener = await listenAt({ host: "127.0.0.1", port: 0 }, (socket) => socket.destroy());
    t.after(() => listener.close());
    const taken = { host: "127.0.0.1", port: listener.port ?? assert.fail() };
    await assert.rejects(
      listenAt(taken, (socket) => socket.destroy()),
      { code: "EADDRINUSE" },
    );
  });
});
