import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { BatchHttp } from "../../../src/agent/batch/batch-http.ts";

test("closes the connection of a file that is not read to its end", async () => {
  const closed = Promise.withResolvers<void>();
  const server = createServer((_, response) => {
    response.on("close", () => closed.resolve());
    response.write('{"custom_id":"first"}\n');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true });
  const http = new BatchHttp({
    baseUrl: new URL(`http://127.0.0.1:${port}`),
    agent,
    headers: {},
    idleTimeoutMs: 60_000,
  });
  try {
    for await (const line of http.lines("/results", new AbortController().signal)) {
      assert.deepEqual(line, { custom_id: "first" });
      break;
    }
    await closed.promise;
  } finally {
    agent.destroy();
    server.close();
  }
});
