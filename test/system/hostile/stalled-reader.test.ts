import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { sh } from "../../support/servers/raw-connection.ts";
import { isAlive, residentBytes, type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { settledPeak, settledValue } from "../../support/system/process-stats.ts";
import { until } from "../../support/system/until.ts";

const MIB = 1024 * 1024;

/** Waits until a file has bytes and no longer grows, because backpressure pauses its writer. Returns its size. */
async function waitForBackpressure(path: string, server: ServeChild): Promise<number> {
  const size = () => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  await until("the writer has begun", () => size() > 0);
  return settledValue(size, server.serverPid());
}

/** Prints without end, 64 KiB at a time, and appends one byte to a file after each 64 KiB. */
const flood = (path: string) =>
  sh(`echo $$; i=0; while :; do head -c 65536 /dev/zero; i=$((i+1)); printf . >> '${path}'; done`);

async function ready(server: ServeChild) {
  const client = await server.connect();
  await client.handshake();
  return client;
}

describe("a stalled reader", () => {
  test("pauses its own processes, keeps requests working, and costs no memory", async () => {
    using scratch = scratchDirectory();
    await using server = await serve();
    const pid = server.serverPid();
    await using client = await ready(server);
    await using other = await ready(server);
    await other.start("warm", sh("head -c 20000000 /dev/zero"));
    await other.finished("warm");
    const before = residentBytes(pid);

    const ids = ["a", "b", "c", "d"];
    for (const id of ids) await client.start(id, flood(join(scratch.path, id)));
    await client.until("all have begun", () => ids.every((id) => client.output(id).includes("\n")));
    const pids = ids.map((id) => Number(client.output(id).split("\n", 1)[0]));
    client.pause();
    for (const id of ids) await waitForBackpressure(join(scratch.path, id), server);
    // Each process has its retained output and head and tail of both streams. The queue of the connection is bounded.
    const grown = (await settledPeak(pid)) - before;
    assert.ok(grown < 60 * MIB, `the server grew by ${Math.round(grown / MIB)} MiB`);

    // The server executes requests although the client does not read the responses yet.
    const answers = [client.request("process/terminate", { processId: "a" }), client.request("process/list")];
    await until("the terminated process to end", () => !isAlive(pids[0] ?? 0));
    assert.ok(pids.slice(1).every(isAlive));
    // Processes of other clients do not wait for the stalled reader.
    await other.start("p", sh("head -c 3000000 /dev/zero"));
    await other.finished("p");
    assert.equal(other.outputBytes("p").length, 3_000_000);

    client.resume();
    const [terminated, list] = await Promise.all(answers);
    assert.deepEqual(terminated?.result, { running: true });
    assert.ok(Array.isArray(list?.result?.processes) && list.result.processes.length === 4);
    const { exited } = await client.finished("a");
    assert.equal(exited.reason, "terminated");
    const seqs = client.notificationsOf("a").map(({ params }) => params.seq);
    assert.deepEqual(
      seqs,
      seqs.map((_, index) => index + 1),
    );
    for (const id of ids.slice(1)) await client.call("process/terminate", { processId: id });
  });

  test("loses nothing when it resumes reading", async () => {
    using scratch = scratchDirectory();
    await using server = await serve();
    await using client = await ready(server);
    const note = join(scratch.path, "note");
    const script = `i=0; while [ $i -lt 300 ]; do seq -f '%07.0f' $((i*8000)) $((i*8000+7999)); i=$((i+1)); printf . >> '${note}'; done`;
    client.pause();
    const started = client.start("p", sh(script));
    const size = await waitForBackpressure(note, server);
    assert.ok(size < 300, "backpressure did not pause the writer");
    client.resume();
    await started;
    const { output } = await client.finished("p");
    assert.equal(output.length, 300 * 8000 * 8);
    let at = 0;
    for (let n = 0; n < 300 * 8000; n += 997) {
      at = n * 8;
      assert.equal(Number(output.slice(at, at + 7)), n % 10_000_000);
    }
  });

  test("that keeps sending requests without reading the responses costs no memory", async () => {
    await using server = await serve();
    const pid = server.serverPid();
    await using client = await ready(server);
    await client.start("p", sh("head -c 4000000 /dev/zero; read x"), { pipeStdin: true });
    await client.until("the whole output", () => client.outputBytes("p").length === 4_000_000);
    const { processes } = (await client.call("process/list")) as { processes: { pid: number }[] };
    const reading = processes[0]?.pid ?? 0;
    const before = residentBytes(pid);
    client.pause();
    // Each response has 1.4 MB, 170 MB in total.
    const answers = Array.from({ length: 120 }, () => client.request("process/read", { processId: "p" }));
    const write = client.request("process/write", { processId: "p", chunk: "Cg==", writeId: "1" });
    // The write follows all of these requests; the process ends once the server has handled the write.
    await until("the write to reach the process", () => !isAlive(reading));
    const grown = (await settledPeak(pid)) - before;
    client.resume();
    assert.ok(grown < 90 * MIB, `the server grew by ${Math.round(grown / MIB)} MiB`);
    for (const { result } of await Promise.all(answers)) assert.equal(result?.failure, null);
    assert.equal((await write).result?.status, "accepted");
  });
});
