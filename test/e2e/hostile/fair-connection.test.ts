import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { sh } from "../../support/servers/raw-connection.ts";
import { scratchDirectory, serve } from "../../support/servers/serve.ts";
import { settledValue } from "../../support/system/process-stats.ts";
import { until } from "../../support/system/until.ts";

const MIB = 1024 * 1024;

const sizeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

describe("a connection that a process floods while its client does not read", () => {
  test("carries another process's output soon after, and every process's output in order", async () => {
    using scratch = scratchDirectory();
    await using server = await serve();
    await using client = await server.connect();
    await using other = await server.connect();
    await client.handshake();
    await other.handshake();
    // The client pauses before any output, so that the kernel keeps its receive buffer small.
    client.pause();
    const [flooded, echoed] = [join(scratch.path, "flooded"), join(scratch.path, "echoed")];
    const floods = ["a", "b"].map((id) =>
      client.start(
        id,
        sh(`i=0; while :; do seq -f '%07.0f' $((i*8000)) $((i*8000+7999)); i=$((i+1)); printf . >> '${flooded}'; done`),
      ),
    );
    const script = `while read line; do echo "$line"; printf . >> '${echoed}'; done`;
    const echo = client.start("echo", sh(script), { pipeStdin: true });
    await until("the floods have begun", () => sizeOf(flooded) > 0);
    await settledValue(() => sizeOf(flooded), server.serverPid());

    const written = client.write("echo", "word\n");
    await until("the process echoed", () => sizeOf(echoed) === 1);
    // After these calls the server has read the echo, because each tick of its event loop serves all ready descriptors.
    for (let count = 0; count < 20; count++) await other.call("environment/status");
    client.resume();
    await Promise.all([...floods, echo, written]);
    await client.outputContains("echo", "word\n");
    const at = client.messages.findIndex(
      ({ method, params }) => method === "process/output" && params?.processId === "echo",
    );
    const ahead = client.messages
      .slice(0, at)
      .filter(({ method }) => method === "process/output")
      .reduce((bytes, { params }) => bytes + Buffer.from(String(params?.chunk), "base64").length, 0);
    assert.ok(ahead < 1.5 * MIB, `${(ahead / MIB).toFixed(1)} MiB were sent before it`);

    const enough = 4 * MIB;
    await client.until("both go on", () => ["a", "b"].every((id) => client.outputBytes(id).length > enough));
    for (const id of ["a", "b"]) {
      const output = client.output(id);
      for (let n = 0; n < enough / 8; n += 997) assert.equal(Number(output.slice(n * 8, n * 8 + 7)), n);
    }
    for (const id of ["a", "b", "echo"]) await client.call("process/terminate", { processId: id });
  });
});
