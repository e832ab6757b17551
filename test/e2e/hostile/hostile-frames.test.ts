import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { closePayload, RawWebSocket, rawFrame } from "../../support/faults/raw-frames.ts";
import { ServeChild } from "../../support/servers/serve.ts";

/** Frames that no well-behaved client sends, over TCP to a real server, with the addon's sockets and with Node's. */

/** Values at which a sum, a sign, a double or a 32-bit number would overflow, and their neighbors. */
const EDGES = [2n ** 31n, 2n ** 32n, 2n ** 53n, 2n ** 63n, 2n ** 64n];
const AROUND = [-16n, -15n, -14n, -13n, -12n, -11n, -10n, -9n, -8n, -7n, -6n, -2n, -1n, 0n, 1n, 14n];
const LENGTHS = EDGES.flatMap((edge) => AROUND.map((by) => edge + by)).filter((length) => length < 2n ** 64n);

const MAX_MESSAGE_BYTES = 67_108_864;
const LIMIT = BigInt(MAX_MESSAGE_BYTES);

const WAYS = {
  "the addon's sockets": {},
  "Node's sockets": { PROCWIRE_NATIVE_SPAWNER: "/nowhere" },
};

for (const [way, env] of Object.entries(WAYS)) {
  async function serve(): Promise<{ server: ServeChild; port: number }> {
    const server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], { env }).listening();
    return { server, port: Number(new URL(server.url).port) };
  }

  /** Returns the server's response to `frames` followed by invalid bytes. */
  async function exchangeFrames(port: number, ...frames: Buffer[]): Promise<string[]> {
    const client = await RawWebSocket.open(port);
    client.send(...frames, Buffer.alloc(40, 0x81));
    return client.finish();
  }

  describe(`a close over ${way}`, () => {
    test("is answered with 1002 or 1007 when its code, its length or its reason is wrong, else with 1000", async () => {
      const { server, port } = await serve();
      await using _ = server;
      const answer = (payload: Buffer) => exchangeFrames(port, rawFrame({ opcode: 8, payload }));
      for (const code of [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535]) {
        assert.deepEqual(await answer(closePayload(code)), ["close 1002"], `code ${code}`);
      }
      assert.deepEqual(await answer(Buffer.of(3)), ["close 1002"]);
      assert.deepEqual(await answer(closePayload(1000, Buffer.of(0xce))), ["close 1007"]);
      for (const payload of [Buffer.alloc(0), closePayload(1001), closePayload(3000, "é"), closePayload(4999)]) {
        assert.deepEqual(await answer(payload), ["close 1000"], payload.toString("hex"));
      }
    });
  });

  describe(`the declared length of a frame, over ${way}`, () => {
    test("is refused with 1009 above the limit, before any addition can overflow, and the server keeps serving", async () => {
      const { server, port } = await serve();
      await using _ = server;
      for (const claimed of [LIMIT + 1n, ...LENGTHS]) {
        for (const opcode of [1, 2]) {
          const result = await exchangeFrames(port, rawFrame({ opcode, claimed }));
          assert.deepEqual(result, ["close 1009"], `${claimed} bytes, opcode ${opcode}`);
        }
        const begun = rawFrame({ opcode: 1, fin: false, payload: Buffer.from("{") });
        for (const fin of [true, false]) {
          const result = await exchangeFrames(port, begun, rawFrame({ opcode: 0, fin, claimed }));
          assert.deepEqual(result, ["close 1009"], `${claimed} bytes, continued`);
        }
      }
      await using client = await server.connect();
      await client.handshake();
    });

    test("is refused with 1002 if the frame breaks another rule first", async () => {
      const { server, port } = await serve();
      await using _ = server;
      for (const claimed of [126n, ...LENGTHS.filter((_, at) => at % 5 === 0), 2n ** 64n - 14n]) {
        for (const wrong of [
          { opcode: 9 },
          { opcode: 8 },
          { opcode: 1, mask: null },
          { opcode: 1, rsv: 4 },
          { opcode: 3 },
          { opcode: 0 },
        ]) {
          const result = await exchangeFrames(port, rawFrame({ ...wrong, claimed }));
          assert.deepEqual(result, ["close 1002"], `${claimed} bytes, ${JSON.stringify(wrong)}`);
        }
      }
    });

    test("is accepted up to and including the limit", async () => {
      const { server, port } = await serve();
      await using _ = server;
      for (const claimed of [200n, 2n ** 20n - 14n, 2n ** 20n, 2n ** 20n + 1n, LIMIT]) {
        assert.deepEqual(await exchangeFrames(port, rawFrame({ opcode: 1, claimed })), [], `${claimed} bytes`);
      }
    });

    test("is treated the same at every split of the head, also in bytes that come with the request", async () => {
      const { server, port } = await serve();
      await using _ = server;
      const bytes = rawFrame({ opcode: 1, claimed: 2n ** 64n - 14n });
      for (let at = 1; at < bytes.length; at++) {
        const client = await RawWebSocket.open(port);
        client.send(rawFrame({ opcode: 9, payload: Buffer.from("a") }), bytes.subarray(0, at));
        // The response shows that the server processed the first bytes before the test sends the others.
        assert.deepEqual(await client.heard(1), ["pong YQ=="]);
        client.send(bytes.subarray(at));
        assert.deepEqual(await client.finish(), ["pong YQ==", "close 1009"], `split at ${at}`);
      }
      const early = await RawWebSocket.open(port, bytes);
      assert.deepEqual(await early.finish(), ["close 1009"]);
    });
  });
}
