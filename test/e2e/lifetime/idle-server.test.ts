import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { availableSandboxes } from "../../../src/sandbox/sandbox-probe.ts";
import { fuzz } from "../../support/faults/request-fuzz.ts";
import type { WireClient } from "../../support/servers/raw-connection.ts";
import { isAlive, makePipe, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

/** More seeds: `PROCWIRE_FUZZ_SEEDS=200 node --test test/e2e/lifetime/idle-server.test.ts`. */
const SEEDS = Number(process.env.PROCWIRE_FUZZ_SEEDS ?? 3);
const FIRST_SEED = Number(process.env.PROCWIRE_FUZZ_FROM ?? 1);

/** Clock ticks (10 ms each) that an idle server may use between two measurements. A busy server uses 30. */
const MAX_IDLE_TICKS = 1;
const MEASURE_INTERVAL_MS = 300;

/** Waits until the server uses no processor time and has no descendants, not even zombies. */
async function waitUntilIdle(serverPid: number, what: string): Promise<void> {
  let seen = "";
  const poll = async () => {
    const before = ticksOf(serverPid);
    await new Promise((resolve) => setTimeout(resolve, MEASURE_INTERVAL_MS));
    const ticks = ticksOf(serverPid) - before;
    const below = descendantsOf(serverPid);
    seen = `${ticks} ticks in ${MEASURE_INTERVAL_MS} ms; below it: ${below.join(", ")}`;
    return ticks <= MAX_IDLE_TICKS && below.length === 0;
  };
  await until(`the server to be idle ${what}`, poll).catch((error: unknown) => {
    throw new Error(`${String(error)}: ${seen}`);
  });
}

describe("an idle server", { timeout: 600_000, concurrency: 4 }, () => {
  test("is idle after any requests, and no zombie is left below it", async () => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
      using directory = scratchDirectory();
      mkdirSync(join(directory.path, "c"));
      writeFileSync(join(directory.path, "a"), "text");
      symlinkSync("a", join(directory.path, "link"));
      makePipe(join(directory.path, "fifo"));
      await using server = await serve("--detached-session-ttl", "0.2", "--retained-output-bytes", "65536");
      await fuzz({ url: server.url, seed, directory: directory.path });
      assert.equal(server.child.exitCode, null, `seed ${seed}: ${server.stderr}`);
      await waitUntilIdle(server.serverPid(), `after seed ${seed}`);
      assert.doesNotMatch(server.stderr, /unexpectedly|failed/, `seed ${seed}`);
      assert.deepEqual(await server.stop(), { code: 0, signal: null }, `seed ${seed}`);
    }
  });

  const noBubblewrap = availableSandboxes().length > 0 ? false : "NOT TESTED: bubblewrap does not work on this machine";
  if (noBubblewrap !== false && process.env.CI) assert.fail(noBubblewrap);
  test("has reaped the processes of the bubblewrap availability check", { skip: noBubblewrap }, async () => {
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    assert.deepEqual((await client.call("environment/info")).sandboxes, ["bubblewrap"]);
    await waitUntilIdle(server.serverPid(), "after a check for sandboxes");
    await client.close();
  });

  test("stays idle while a debugger delays the exit of a process, and reports the exit afterwards", async (t) => {
    using directory = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    const traced = await startTraced(client, directory.path);
    if (traced.type === "untraced") return t.skip(skipUnless(false, traced.why) || undefined);
    const { pid } = traced;
    process.kill(pid, "SIGKILL");
    await until("the process to be a zombie", () => stateOf(pid) === "Z");
    let ticks = 0;
    await until("the server to be idle", async () => {
      const before = ticksOf(server.serverPid());
      await new Promise((resolve) => setTimeout(resolve, MEASURE_INTERVAL_MS));
      ticks = ticksOf(server.serverPid()) - before;
      return ticks <= MAX_IDLE_TICKS;
    });
    assert.equal(stateOf(pid), "Z", "the tracer did not keep it");
    traced.release();
    assert.equal((await client.finished("p")).exitCode, 128 + 9);
    await client.close();
  });

  test("exits although a debugger never releases a dead process", async (t) => {
    using directory = scratchDirectory();
    await using server = await serve("--shutdown-grace", "0");
    const client = await server.connect();
    const traced = await startTraced(client, directory.path);
    if (traced.type === "untraced") return t.skip(skipUnless(false, traced.why) || undefined);
    const serverPid = server.serverPid();
    server.child.kill("SIGTERM");
    await until("the server to end", () => !isAlive(serverPid));
    assert.equal(stateOf(traced.pid), "Z", "the tracer did not keep it");
    traced.release();
    assert.deepEqual(await server.exited, { code: 0, signal: null });
  });
});

type Traced = { type: "traced"; pid: number; release: () => void } | { type: "untraced"; why: string };

/** Starts process `p`, whose exit its parent cannot see until the tracer releases it. */
async function startTraced(client: WireClient, directory: string): Promise<Traced> {
  const tracer = join(directory, "tracer");
  const source = join(import.meta.dirname, "..", "..", "fixtures", "native", "tracer.c");
  const compiled = spawnSync(process.env.CC ?? "cc", ["-o", tracer, source], { encoding: "utf8" });
  if (compiled.status !== 0) return untraced(`no C compiler here: ${compiled.error ?? compiled.stderr}`);
  await client.handshake({ extensions: ["started"] });
  await client.start("p", ["/bin/sleep", "300"]);
  const { params } = await client.notification("process/started", "p");
  const pid = Number(params?.pid);
  const holder = spawn(tracer, [String(pid)]);
  if (!(await isTracing(holder))) return untraced("no process may trace another here");
  return { type: "traced", pid, release: () => holder.stdin.end() };
}

function untraced(why: string): Traced {
  assert.equal(process.env.CI, undefined, why);
  return { type: "untraced", why: `NOT TESTED: ${why}` };
}

/** Reports whether the tracer has attached. */
async function isTracing(tracer: ChildProcessWithoutNullStreams): Promise<boolean> {
  let printed = "";
  tracer.stdout.on("data", (bytes) => {
    printed += bytes;
  });
  await until("the tracer", () => printed !== "" || tracer.exitCode !== null);
  return printed !== "";
}

function fieldsOf(pid: number): string[] {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  return text.slice(text.lastIndexOf(")") + 2).split(" ");
}

const stateOf = (pid: number) => fieldsOf(pid)[0];

/** Returns the user and system time of a process in clock ticks. */
function ticksOf(pid: number): number {
  const fields = fieldsOf(pid);
  return Number(fields[11]) + Number(fields[12]);
}

/** All descendants, with their names and states. */
function descendantsOf(pid: number): string[] {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`);
    const children = tasks.flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").trim().split(" "),
    );
    return children
      .filter((child) => child !== "")
      .flatMap((child) => [`${child} (${stateOf(Number(child))})`, ...descendantsOf(Number(child))]);
  } catch {
    // The process has exited.
    return [];
  }
}
