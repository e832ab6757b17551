import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../../../src/protocol/forward-schemas.ts";
import { until } from "../../support/system/until.ts";
import { connectScripted, ScriptedServer } from "../scripted-server.ts";

const CHUNK = new Uint8Array(MAX_FORWARD_CHUNK_BYTES);
/** A server that observes the window sends another chunk as long as the window has space. */
const MAX_CHUNKS = FORWARD_WINDOW_BYTES / MAX_FORWARD_CHUNK_BYTES + 1;

async function openStream() {
  const { client, server } = await connectScripted({}, new ScriptedServer({ "forward/open": () => ({}) }));
  const stream = await client.forwards.open("localhost", 80);
  const opened = server.received.find((message) => message.type === "request" && message.method === "forward/open");
  assert.ok(opened?.type === "request");
  const { streamId } = opened.params as { streamId: string };
  const [connection] = server.connections;
  const send = (chunks: number) => {
    for (let sent = 0; sent < chunks; sent++)
      connection?.notify("forward/data", { streamId, chunk: encodeBase64(CHUNK) });
  };
  const state = { receivedBytes: 0, reason: null as string | null };
  stream.open({
    data: (chunk) => {
      state.receivedBytes += chunk.length;
    },
    end: () => undefined,
    close: (reason) => {
      state.reason = reason;
    },
  });
  return { client, server, stream, send, state };
}

describe("a forwarded stream", () => {
  test("accepts a full window again after its bytes were acknowledged", async () => {
    const { client, stream, send, state } = await openStream();
    await using _ = client;
    for (let round = 1; round <= 3; round++) {
      send(MAX_CHUNKS);
      await until("all chunks arrive", () => state.receivedBytes === round * MAX_CHUNKS * CHUNK.length);
      stream.acknowledge(MAX_CHUNKS * CHUNK.length);
    }
    assert.equal(state.reason, null);
  });

  test("is closed if a server sends more than the window", async () => {
    const { client, server, send, state } = await openStream();
    await using _ = client;
    send(MAX_CHUNKS + 10);
    await until("the stream is closed", () => state.reason !== null);
    assert.equal(state.reason, "the server sent more than the window");
    assert.equal(state.receivedBytes, MAX_CHUNKS * CHUNK.length);
    const isClosed = () =>
      server.received.some((message) => message.type === "request" && message.method === "forward/close");
    await until("the server gets the close", isClosed);
  });
});
