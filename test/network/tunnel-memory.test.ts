import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { NetworkProxy } from "../../src/network/network-proxy.ts";
import { collectGarbage } from "../support/collect-garbage.ts";
import { policy } from "../support/network/network-config.ts";
import { until } from "../support/system/until.ts";

const IDLE = fileURLToPath(new URL("../support/network/idle-connections.mjs", import.meta.url));
const COUNT = 500;
/** Two sockets of Node have 4 KiB; a parser, a request and a set of closures per tunnel would add 3.5 KiB. */
const MAX_BYTES = 6 * 1024;

async function liveBytes(): Promise<number> {
  await collectGarbage();
  return process.memoryUsage().heapUsed;
}

const countSockets = () => process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;

test("an open tunnel retains little more than its two sockets", async () => {
  const domains = { "127.0.0.1": "allow" } as const;
  const proxy = new NetworkProxy({
    ...{ processId: "p", config: { proxy: policy({ domains }) } },
    isOwnListener: () => false,
  });
  const { http } = await proxy.listen();
  // Both ends of the tunnels are in other processes.
  const script = `const server = require("node:net").createServer((socket) => socket.on("error", () => undefined).resume());
    server.listen(0, "127.0.0.1", () => console.log(server.address().port)); process.stdin.resume().on("end", () => process.exit())`;
  const origin = spawn(process.execPath, ["-e", script], { stdio: ["pipe", "pipe", "inherit"] });
  const [port] = await once(createInterface({ input: origin.stdout }), "line");
  const client = spawn(process.execPath, [IDLE, `${COUNT}`, `127.0.0.1:${port}`], {
    env: { HTTP_PROXY: `http://127.0.0.1:${http}` },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: client.stdout })[Symbol.asyncIterator]();
  const send = async (word: string) => {
    client.stdin.write(`${word}\n`);
    await lines.next();
  };
  try {
    // The first tunnels compile the code.
    await send("open");
    await send("close");
    await until("the end of the tunnels", () => countSockets() === 0);
    const before = await liveBytes();
    await send("open");
    await until("the tunnels", () => countSockets() === 2 * COUNT);
    const each = ((await liveBytes()) - before) / COUNT;
    assert.ok(each > 0 && each < MAX_BYTES, `${each} bytes per tunnel`);
  } finally {
    client.stdin.end();
    origin.stdin.end();
    proxy.close();
  }
});
