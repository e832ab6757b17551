/** Uses every feature of a server once; for tests that inject faults meanwhile. */

import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { sh } from "../servers/raw-connection.ts";
import type { ServeChild } from "../servers/serve.ts";
import { processorSeconds } from "./process-stats.ts";
import { until } from "./until.ts";

/** Share of one processor. An idle server uses less; a server in a busy loop uses a whole processor. */
const SPINNING_SHARE = 0.5;

/** Connects, runs processes with pipes, a terminal and bulk output, writes and reads a file, and disconnects. */
export async function useEverything(server: ServeChild, leave?: AbortSignal, directory = tmpdir()): Promise<void> {
  const client = await raced(server.connect(), leave);
  try {
    await raced(client.handshake(), leave);
    const rest = async () => {
      await client.start("pipes", ["cat"], { pipeStdin: true });
      await client.write("pipes", "hello");
      await client.call("process/closeStdin", { processId: "pipes" });
      await client.finished("pipes");
      assert.equal(client.output("pipes"), "hello");
      await client.start("terminal", ["cat"], { tty: true });
      await client.write("terminal", "x");
      await client.call("process/terminate", { processId: "terminal" });
      await client.finished("terminal");
      await client.start("flood", sh("head -c 300000 /dev/zero; exit 3"));
      await client.finished("flood");
      assert.equal(client.output("flood").length, 300_000);
      await client.call("fs/readFile", { path: "file:///etc/hostname" });
      const path = `file://${directory}/procwire-used-${process.pid}`;
      await client.call("fs/writeFile", { path, dataBase64: "aGVsbG8=" });
      await client.call("fs/remove", { path });
    };
    await raced(rest(), leave);
    await raced(client.close(), leave);
  } finally {
    client.cut();
  }
}

function raced<T>(promise: Promise<T>, leave: AbortSignal | undefined): Promise<T> {
  if (!leave) return promise;
  // The exit status does not matter after the client has disconnected.
  promise.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(new Error("left without an answer"));
    if (leave.aborted) onAbort();
    leave.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject);
  });
}

export async function isIdle(pid: number): Promise<void> {
  await until("the server rests", async () => {
    const [usedBefore, from] = [processorSeconds(pid), performance.now()];
    // This is the measuring interval of the processor use, not a wait for a condition.
    await new Promise((resolve) => setTimeout(resolve, 100));
    return (processorSeconds(pid) - usedBefore) / ((performance.now() - from) / 1000) < SPINNING_SHARE;
  });
}
