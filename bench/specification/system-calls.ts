import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sh, type WireClient } from "../../test/support/servers/raw-connection.ts";
import { serve } from "../../test/support/servers/serve.ts";
import { until } from "../../test/support/system/until.ts";
import type { Costs } from "./specification.ts";

/** Operations that warm up a server: more than it prepares cgroups, and enough to settle what it adapts to its load. */
const WARM_UP = 60;
const STARTS = 100;
const ECHOES = 300;
const OUTPUT_MIB = 8;
const BLOCKS_PER_MIB = 16;

/** Echoes each line later than the server waits to send a response together with the output that it causes. */
const SLOW_ECHO = sh('while read -r line; do sleep 0.002; echo "$line"; done');
/** Writes 64 KiB, the capacity of a pipe, for each line, in one call: the number of reads does not depend on timing. */
const BLOCKS = sh("while read -r line; do dd if=/dev/zero bs=64k count=1 status=none; done");

/** Calls whose number depends on timing: they wait, or they manage memory and threads. */
const UNCOUNTED =
  /^(?:futex|epoll_p?wait2?|poll|ppoll|restart_syscall|clock_nanosleep|sched_\w+|brk|mmap|munmap|madvise|mprotect)$/;

/** System calls of a server by operation, from strace, for one connection without concurrent requests. */
export async function systemCalls(): Promise<Costs> {
  await using server = await serve();
  const client = await server.connect();
  await client.handshake();
  for (let i = 0; i < WARM_UP; i++) await startAndExit(client, `warm-${i}`);
  await client.start("echo", SLOW_ECHO, { pipeStdin: true });
  for (let i = 0; i < WARM_UP; i++) await echo(client, `warm ${i}\n`);
  await client.start("blocks", BLOCKS, { pipeStdin: true });
  await block(client);
  const pid = server.serverPid();
  const starts = await trace(pid, async () => {
    for (let i = 0; i < STARTS; i++) await startAndExit(client, `p-${i}`);
  });
  const echoes = await trace(pid, async () => {
    for (let i = 0; i < ECHOES; i++) await echo(client, `line ${i}\n`);
  });
  const output = await trace(pid, async () => {
    for (let i = 0; i < OUTPUT_MIB * BLOCKS_PER_MIB; i++) await block(client);
  });
  await client.close();
  return {
    "system calls of the server per start and exit": starts.server / STARTS,
    "system calls of the child between its start and exec": starts.child / STARTS,
    "system calls of the server per echo": echoes.server / ECHOES,
    "system calls of the server per MiB of output": output.server / OUTPUT_MIB,
  };
}

async function startAndExit(client: WireClient, processId: string): Promise<void> {
  await client.start(processId, ["/bin/true"]);
  await client.notification("process/closed", processId);
}

async function echo(client: WireClient, line: string): Promise<void> {
  const before = client.outputBytes("echo").length;
  await client.write("echo", line);
  await client.until("the echo", () => client.outputBytes("echo").length === before + line.length);
}

async function block(client: WireClient): Promise<void> {
  const before = client.outputBytes("blocks").length;
  await client.write("blocks", "next\n");
  await client.until("64 KiB", () => client.outputBytes("blocks").length === before + 65_536);
}

interface CallCounts {
  /** Calls of all threads of the server. */
  server: number;
  /** Calls of its children up to `execve`. */
  child: number;
}

/** Counts the calls of a running server during `work`. */
async function trace(pid: number, work: () => Promise<void>): Promise<CallCounts> {
  const directory = mkdtempSync(join(tmpdir(), "procwire-strace-"));
  try {
    const file = join(directory, "trace");
    const threads = new Set(readdirSync(`/proc/${pid}/task`));
    const strace = spawn("strace", ["-f", "-e", "signal=none", "-o", file, "-p", String(pid)], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    let printed = "";
    strace.stderr.setEncoding("utf8");
    strace.stderr.on("data", (text: string) => {
      printed += text;
    });
    const exited = new Promise((resolve) => strace.once("close", resolve));
    await until(`strace attaches: ${printed}`, () => / attached/.test(printed), exited);
    await work();
    for (const thread of readdirSync(`/proc/${pid}/task`)) threads.add(thread);
    strace.kill("SIGINT");
    await exited;
    return countCalls(readFileSync(file, "utf8"), threads);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function countCalls(text: string, threads: ReadonlySet<string>): CallCounts {
  const counts = { server: 0, child: 0 };
  const executed = new Set<string>();
  // The second line of an interrupted call has no name at its start.
  for (const [, thread = "", call = ""] of text.matchAll(/^(\d+) +(\w+)\(/gm)) {
    if (threads.has(thread)) counts.server += UNCOUNTED.test(call) ? 0 : 1;
    else if (!executed.has(thread)) counts.child++;
    if (call === "execve") executed.add(thread);
  }
  return counts;
}
