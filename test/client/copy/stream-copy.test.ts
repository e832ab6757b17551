import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readlinkSync } from "node:fs";
import { test } from "node:test";
import { copyStreamToFile } from "../../../src/client/copy/stream-copy.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { Scratch } from "../../files/scratch.ts";

/** Open files of this process below a directory. The server of this test runs in this process. */
function openFilesBelow(directory: string): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(`${directory}/`) ? [path] : [];
    } catch {
      // The descriptor of the directory listing itself.
      return [];
    }
  });
}

test("a copy from a stream that fails closes its partial file and removes it", async (t) => {
  const scratch = new Scratch(t);
  const directory = scratch.directory("target");
  const server = new ExecServer(createLocalHost());
  t.after(() => server.close());
  const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  t.after(() => listening.close());
  const client = await NodeExecServerClient.connectWebSocket({ url: listening.url });
  t.after(() => client.close());
  async function* failing() {
    yield Buffer.alloc(100_000);
    throw new Error("the source failed");
  }
  const target = { files: client.files, path: `${directory}/file` };
  for (let round = 0; round < 3; round++)
    await assert.rejects(copyStreamToFile(failing(), target, { digest: createHash("sha256") }), /the source failed/);
  assert.deepEqual(openFilesBelow(directory), []);
  assert.deepEqual(readdirSync(directory), []);
});
