import assert from "node:assert/strict";
import { test } from "node:test";
import { connectScripted } from "../scripted-server.ts";

test("a streamed body that is returned before the first read is discarded and pauses nothing", async () => {
  const { server, client } = await connectScripted();
  server.answers["http/request"] = () => ({ status: 200, headers: [], bodyBase64: "" });
  const discarded = await client.http.stream({ url: "http://127.0.0.1/" });
  const read = await client.http.stream({ url: "http://127.0.0.1/" });
  const [discardedId, readId] = server.calls("http/request").map(({ requestId }) => requestId);
  await discarded.body.return?.();
  const send = (requestId: unknown, bytes: Buffer, done: boolean) => {
    const delta = { requestId, seq: 1, deltaBase64: bytes.toString("base64"), done, error: null };
    server.current.notify("http/request/bodyDelta", delta);
  };
  send(discardedId, Buffer.alloc(5 * 1024 * 1024), false);
  send(readId, Buffer.from("next"), true);
  assert.deepEqual(await read.body.next(), { value: Buffer.from("next"), done: false });
  await client.close();
});
