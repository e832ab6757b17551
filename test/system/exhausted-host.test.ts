import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { PROCWIRE, ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";
import { descendantsOf, openDescriptors } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

const DESCRIPTORS = 96;

/** Starts a server under a resource limit; `limit` is an argument of the shell's `ulimit`. */
function limited(limit: string): Promise<ServeChild> {
  const script = `ulimit ${limit} && exec "$0" serve "$@"`;
  return new ServeChild(["--listen", "ws://127.0.0.1:0", "--detached-session-ttl", "0"], {
    command: ["/bin/sh", "-c", script, PROCWIRE],
  }).listening();
}

describe("a host with exhausted resources", () => {
  test("a start without free descriptors fails with the system error, and succeeds once descriptors are free", async () => {
    await using server = await limited(`-n ${DESCRIPTORS}`);
    const client = await server.connect();
    await client.handshake();
    await client.start("first", ["true"]);
    await client.finished("first");
    const pid = server.serverPid();
    const before = openDescriptors(pid).length;
    const started: string[] = [];
    let refusal: { code: number; message: string } | undefined;
    for (let n = 0; n < DESCRIPTORS && !refusal; n++) {
      const answer = await client.start(`p${n}`, ["cat"], { pipeStdin: true }).then(
        () => null,
        (error: unknown) => String(error),
      );
      if (answer === null) started.push(`p${n}`);
      else refusal = { code: -32603, message: answer };
    }
    assert.match(refusal?.message ?? "", /No file descriptors available \(os error 24\)/);
    assert.ok(started.length > 3, `${started.length} were started`);
    // Running processes continue while no new process can start.
    await client.write("p0", "still here");
    await client.until("the echo", () => client.output("p0") === "still here");
    for (const processId of started) await client.call("process/terminate", { processId });
    for (const processId of started) await client.finished(processId);
    await until("every descriptor is back", () => openDescriptors(pid).length <= before);
    await client.start("again", ["true"]);
    await client.finished("again");
    assert.equal(descendantsOf(pid).length, 0);
    await client.close();
  });

  test("a write to a full disk fails with the system error, and the next write succeeds", async () => {
    using scratch = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const dataBase64 = Buffer.from("contents").toString("base64");
    const refused = await client.refused("fs/writeFile", { path: "file:///dev/full", dataBase64 });
    assert.match(refused.message, /No space left on device/i);
    writeFileSync(join(scratch.path, "there"), "");
    await client.call("fs/writeFile", { path: `file://${scratch.path}/there`, dataBase64 });
    await client.close();
  });
});
