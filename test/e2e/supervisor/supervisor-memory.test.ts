import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { childrenOf, isAlive } from "../../support/servers/serve.ts";
import {
  NO_SUPERVISOR,
  persistentParams,
  StateSegment,
  SupervisedServer,
} from "../../support/servers/supervised-server.ts";
import { watchedDescriptors } from "../../support/system/process-stats.ts";
import { forbidGroupsBelow } from "../../support/system/server-cgroup.ts";
import { until } from "../../support/system/until.ts";

const OPTIONS = { timeout: 600_000, skip: NO_SUPERVISOR };
const ECHO = 'while read line; do echo "got $line"; done; exit 7';

test("a state segment records a read in progress before the server commits it", OPTIONS, async () => {
  await using server = await SupervisedServer.start();
  await using client = await server.connect();
  const flood = await client.start(persistentParams("flood", "exec cat /dev/zero"));
  const reading = (async () => {
    for await (const _ of flood.events());
  })();
  using memory = await StateSegment.of(server.supervisorPid, flood.pid);
  await until("a read in progress", () => {
    // A read takes some microseconds, so each check polls the segment many times.
    for (let poll = 0; poll < 2000; poll++) if (memory.intent === 1) return true;
    return false;
  });
  await flood.terminate();
  await reading;
});

test(
  "output that the state segment no longer holds is a gap of its exact size on the next server",
  OPTIONS,
  async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const size = 6_000_000;
    const persistent = await client.start(
      persistentParams("p", `head -c ${size} /dev/zero; echo over; exec sleep 300`),
    );
    await waitFor(persistent, "over\n");
    const handle = (await client.list())[0]?.handle ?? "";
    await server.killServer([persistent.pid]);
    await using viewer = await server.connect();
    const seen = await viewer.backend.attachByHandle(handle, {});
    let [gap, output, last] = [0, 0, 0];
    for await (const event of seen.events()) {
      if (event.type === "gap") [gap, last] = [gap + (event.bytes ?? Number.NaN), event.toSeq];
      if (event.type !== "output") continue;
      assert.equal(event.seq, last + 1);
      last = event.seq;
      output += event.chunk.length;
      if (Buffer.from(event.chunk).toString().endsWith("over\n")) break;
    }
    assert.ok(gap > 0 && output > 0);
    assert.equal(gap + output, size + "over\n".length);
    await persistent.terminate();
  },
);

test(
  "an exit whose sequence number a killed server had reserved but not used is reported and survives the next kill",
  OPTIONS,
  async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const persistent = await client.start(
      persistentParams("p", "echo first; read line; echo second; exec <&-; exit 7"),
    );
    const pid = [persistent.pid];
    await waitFor(persistent, "first\n");
    const handle = (await client.list())[0]?.handle ?? "";
    const former = await server.killServer(pid, "SIGSTOP");
    {
      using memory = await StateSegment.of(server.supervisorPid, persistent.pid);
      memory.exitSeq = 2;
    }
    process.kill(former, "SIGKILL");
    await persistent.write(Buffer.from("go\n"));
    assert.equal((await persistent.wait()).exitCode, 7);
    await server.killServer(pid);
    await using viewer = await server.connect();
    const seen: unknown[] = [];
    for await (const event of (await viewer.backend.attachByHandle(handle, {})).events())
      seen.push(event.type === "output" ? Buffer.from(event.chunk).toString() : event.type);
    assert.deepEqual(seen, ["first\n", "second\n", "exited", "closed"]);
  },
);

/**
 * Puts the state segments of persistent processes into states that a kill leaves only at rare moments, then kills the
 * server.
 */
test(
  "a state that a killed server left incomplete in shared memory is reported, completed or ended",
  OPTIONS,
  async () => {
    await using server = await SupervisedServer.start();
    // Without cgroups, so that the supervisor itself must kill the processes.
    forbidGroupsBelow(await server.serverPid([]));
    await using client = await server.connect();
    const torn = await client.start(persistentParams("torn", ECHO));
    const written = await client.start(persistentParams("written", ECHO));
    const foreign = await client.start(persistentParams("foreign", `sleep 300 & setsid sleep 300 & ${ECHO}`));
    const pids = [torn.pid, written.pid, foreign.pid];
    for (const process of [torn, written, foreign]) {
      await process.write(Buffer.from("first\n"));
      await waitFor(process, "got first\n");
    }
    const write = { processId: "written", chunk: Buffer.from("once\n"), writeId: "the-same" };
    await client.call("process/write", write);
    await waitFor(written, "got once\n");
    const { supervisorPid } = server;
    const foreigners = [foreign.pid ?? 0, ...childrenOf(foreign.pid ?? 0)];
    assert.equal(foreigners.length, 3);
    const former = await server.killServer(pids, "SIGSTOP");
    const [tornMemory, writtenMemory, foreignMemory] = await Promise.all(
      pids.map((pid) => StateSegment.of(supervisorPid, pid)),
    );
    assert.ok(tornMemory && writtenMemory && foreignMemory);
    for (using memory of [tornMemory, writtenMemory, foreignMemory]) {
      if (memory === tornMemory) memory.intent = 1;
      if (memory === writtenMemory) memory.forgetLastWriteId();
      if (memory === foreignMemory) memory.version = 2;
    }
    process.kill(former, "SIGKILL");

    // A read without its commit: the number of bytes read is unknown.
    await torn.write(Buffer.from("next\n"));
    await torn.closeStdin();
    const received: unknown[] = [];
    for await (const event of torn.events()) {
      if (event.type === "output") received.push(Buffer.from(event.chunk).toString());
      else if (event.type === "gap") received.push([event.fromSeq, event.toSeq, event.bytes]);
    }
    assert.deepEqual(received, ["got first\n", [2, 2, null], "got next\n"]);

    // A write that was accepted, but whose id was not stored yet.
    assert.deepEqual(await client.call("process/write", write), { status: "accepted" });
    await written.closeStdin();
    await written.wait({ until: { type: "exit" } });
    assert.equal(Buffer.from((await written.snapshot()).stdout).toString(), "got first\ngot once\n");

    // A state segment of another version.
    await until("the process tree of the unreadable segment to end", () => !foreigners.some(isAlive));
    assert.match(server.serve.stderr, /killed persistent processes whose records another version .*"processes":1/);
    await assert.rejects(client.call("process/read", { processId: "foreign" }), /generation [0-9a-f]{8}-2/);
    await until("its memory to be released", () => StateSegment.filesOf(supervisorPid).length === 2);
  },
);

test(
  "a supervisor stops watching the descriptors of a closed process, which the server still holds open",
  OPTIONS,
  async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const persistent = await client.start(persistentParams("p", ECHO));
    await persistent.write(Buffer.from("line\n"));
    const { supervisorPid } = server;
    const open = () => readdirSync(`/proc/${supervisorPid}/fd`);
    const before = open().length;
    await persistent.closeStdin();
    await persistent.wait();
    await until("the supervisor to close the descriptors of the process", () => open().length < before - 2);
    assert.deepEqual(
      watchedDescriptors(supervisorPid).filter((fd) => !open().includes(fd)),
      [],
    );
  },
);

test(
  "a persistent process whose descriptors the supervisor cannot receive is reported as failed and killed",
  OPTIONS,
  async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const { supervisorPid } = server;
    const open = readdirSync(`/proc/${supervisorPid}/fd`);
    let lowest = 0;
    while (open.includes(`${lowest}`)) lowest++;
    // A process with pipes has seven descriptors.
    for (const free of [0, 1, 4, 6]) {
      execFileSync("prlimit", ["--pid", `${supervisorPid}`, `--nofile=${lowest + free}:`]);
      const persistent = await client.start(persistentParams(`p${free}`, "exec sleep 300"));
      const events: string[] = [];
      for await (const event of persistent.events())
        if (event.type !== "output") events.push(event.type === "failed" ? event.message : event.type);
      assert.deepEqual(events, [
        "process killed: the supervisor could not persist it; see the server's log for the cause",
      ]);
      await until("the process to be killed", () => !isAlive(persistent.pid ?? 0));
    }
    assert.match(server.serve.stderr, /cannot persist process: missing descriptor; process killed/);
  },
);
