import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sh, type WireClient } from "../../test/support/servers/raw-connection.ts";
import { ServeChild } from "../../test/support/servers/serve.ts";
import { until } from "../../test/support/system/until.ts";
import type { Costs } from "./specification.ts";

const OBJECTS = 500;
const RETAINED_PROCESSES = 32;
const MIB = 1024 * 1024;
const IDLE_SECONDS = 10;
/** Wake-ups in this time that are not distinguished: V8 and the kernel cause up to three. */
const UNAVOIDABLE_WAKE_UPS = 3;
/** Detached sessions live longer than the measurement. */
const SERVE = ["--listen", "ws://127.0.0.1:0", "--detached-session-ttl", "600"];
const COLLECT_GARBAGE = join(import.meta.dirname, "collect-garbage.cjs");

/** Memory, descriptors and wake-ups of a server by connection, session and process. */
export async function runningCosts(): Promise<Costs> {
  // The lesser of two runs: in one of them V8 may compile code between two measurements.
  const [first, second] = [await connectionCosts(), await connectionCosts()];
  const connection = Object.entries(first).map(([name, value]) => [name, Math.min(value, second[name] ?? value)]);
  return {
    ...Object.fromEntries(connection),
    ...(await processCosts()),
    ...(await retainedCosts()),
    ...(await wakeUps()),
  };
}

async function connectionCosts(): Promise<Costs> {
  await using server = await MeasuredServer.start();
  // The first objects of a kind compile code, and grow the tables that contain the others.
  const initial = server.countDescriptors();
  const closeAll = async (clients: WireClient[]) => {
    await Promise.all(clients.map((client) => client.close()));
    await until("the server has closed its sockets", () => server.countDescriptors() <= initial);
  };
  await closeAll(await server.openMany(OBJECTS));
  const before = await server.heapBytes();
  const files = server.countDescriptors();
  const clients = await server.openMany(OBJECTS);
  const connected = await server.heapBytes();
  const opened = server.countDescriptors() - files;
  await closeAll(clients);
  const detached = await server.heapBytes();
  return {
    "bytes of heap per idle connection with its session": (connected - before) / OBJECTS,
    "bytes of heap per detached session": (detached - before) / OBJECTS,
    "descriptors per connection": opened / OBJECTS,
  };
}

async function processCosts(): Promise<Costs> {
  await using server = await MeasuredServer.start();
  const client = await server.open();
  const startMany = async (name: string) => {
    for (let i = 0; i < OBJECTS; i++) await client.start(`${name}-${i}`, ["/bin/sleep", "600"]);
  };
  await startMany("first");
  const before = await server.heapBytes();
  const files = server.countDescriptors();
  await startMany("second");
  const after = await server.heapBytes();
  const opened = server.countDescriptors() - files;
  await client.close();
  return { "bytes of heap per idle process": (after - before) / OBJECTS, "descriptors per process": opened / OBJECTS };
}

/** Processes that wrote 1 MiB each and still run: the server retains all of it. */
async function retainedCosts(): Promise<Costs> {
  await using server = await MeasuredServer.start();
  const client = await server.open();
  const startMany = async (name: string) => {
    for (let i = 0; i < RETAINED_PROCESSES; i++) {
      await client.start(`${name}-${i}`, sh(`head -c ${MIB} /dev/zero; exec sleep 600`));
      await client.until("all output", () => client.outputBytes(`${name}-${i}`).length === MIB);
    }
    return server.residentBytes();
  };
  const before = await startMany("first");
  const after = await startMany("second");
  await client.close();
  return { "bytes resident per process with 1 MiB of retained output": (after - before) / RETAINED_PROCESSES };
}

async function wakeUps(): Promise<Costs> {
  await using server = await MeasuredServer.start();
  const client = await server.open();
  await client.start("idle", ["/bin/sleep", "600"]);
  const counts: number[] = [];
  // The least of three intervals: the server ends the work of the start in the first one.
  for (let interval = 0; interval < 3; interval++) {
    const before = server.countWakeUps();
    await new Promise((resolve) => setTimeout(resolve, IDLE_SECONDS * 1000));
    counts.push(server.countWakeUps() - before);
  }
  await client.close();
  return {
    "wake-ups in 10 s with an idle connection and process": Math.max(UNAVOIDABLE_WAKE_UPS, Math.min(...counts)),
  };
}

/** A server that collects garbage on request, so that its memory does not depend on when V8 does. */
class MeasuredServer implements AsyncDisposable {
  readonly #server: ServeChild;
  readonly #directory: string;

  static async start(): Promise<MeasuredServer> {
    const directory = mkdtempSync(join(tmpdir(), "procwire-heap-"));
    const env = {
      NODE_OPTIONS: `--expose-gc --require ${COLLECT_GARBAGE}`,
      PROCWIRE_HEAP_FILE: join(directory, "heap"),
    };
    const server = await new ServeChild(SERVE, { env }).listening();
    return new MeasuredServer(server, directory);
  }

  private constructor(server: ServeChild, directory: string) {
    this.#server = server;
    this.#directory = directory;
  }

  async open(): Promise<WireClient> {
    const client = await this.#server.connect();
    await client.handshake();
    return client;
  }

  async openMany(count: number): Promise<WireClient[]> {
    const clients: WireClient[] = [];
    for (let i = 0; i < count; i++) clients.push(await this.open());
    return clients;
  }

  /** Returns the bytes of JavaScript objects that are in use. */
  async heapBytes(): Promise<number> {
    return (await this.#collectGarbage()).used;
  }

  /** Returns the resident memory without the pages of files, and without those of V8's heap that are not in use. */
  async residentBytes(): Promise<number> {
    const heap = await this.#collectGarbage();
    const status = readFileSync(`/proc/${this.#server.serverPid()}/status`, "utf8");
    const anonymous = Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1]) * 1024;
    return anonymous - heap.resident + heap.used;
  }

  async #collectGarbage(): Promise<{ resident: number; used: number }> {
    const file = join(this.#directory, "heap");
    process.kill(this.#server.serverPid(), "SIGUSR2");
    await until("the server has collected garbage", () => existsSync(file));
    const heap: { resident: number; used: number } = JSON.parse(readFileSync(file, "utf8"));
    rmSync(file);
    return heap;
  }

  countDescriptors(): number {
    return readdirSync(`/proc/${this.#server.serverPid()}/fd`).length;
  }

  /** Counts how often the threads waited, and so how often they were woken up. */
  countWakeUps(): number {
    const tasks = `/proc/${this.#server.serverPid()}/task`;
    return readdirSync(tasks).reduce((sum, thread) => {
      const status = readFileSync(`${tasks}/${thread}/status`, "utf8");
      return sum + Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1]);
    }, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server[Symbol.asyncDispose]();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
