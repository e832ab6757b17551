/**
 * `npm run bench:files`: file operations and large messages on both servers, and the longest wait of another client
 * meanwhile. A worker thread performs the work; the main thread only measures the waits.
 *
 *   node bench/files.ts [--rounds 3] [--only NAME,...] [--small] [--no-peer] [--no-write]
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { WebSocket } from "ws";
import { Bystander } from "./hostile/bystander.ts";
import { alignedTable, describeMachine, median, replaceSection } from "./report.ts";
import { ourKind, peerKind, type ServerKind, ServerUnderTest, temporaryHome } from "./server-under-test.ts";

const MIB = 1024 * 1024;
/** The Codex server rejects larger frames. */
const FRAGMENT_BYTES = 8 * MIB;

interface Sizes {
  files: number;
  readMib: number;
  messageBytes: number;
}
const FULL: Sizes = { files: 49_000, readMib: 380, messageBytes: 60_000_000 };
const SMALL: Sizes = { files: 200, readMib: 4, messageBytes: 3_000_000 };

interface Work {
  name: string;
  label: string;
  /** Performs the work and returns the amount of work done, which must be the same on both servers. */
  run(client: Client, root: string, sizes: Sizes): Promise<number>;
}

const uri = (path: string) => `file://${path}`;
const repeated = (text: string, bytes: number) => text.repeat(Math.floor(bytes / text.length));
const countFiles = (path: string) =>
  readdirSync(path, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).length;
const base64 = (bytes: number) => Buffer.alloc(Math.floor((bytes * 3) / 4), "f").toString("base64");

const works: Work[] = [
  {
    name: "idle",
    label: "nothing, for one second",
    async run() {
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      return 0;
    },
  },
  {
    name: "walk",
    label: "`fs/walk` of a tree, to the limit of a response",
    async run(client, root) {
      const options = { maxDepth: 64, maxDirectories: 10_000, maxEntries: 50_000, followDirectorySymlinks: false };
      const { entries } = await client.call("fs/walk", { path: uri(`${root}/tree`), options });
      return entries.length;
    },
  },
  {
    name: "list",
    label: "`fs/readDirectory` of one directory",
    async run(client, root) {
      return (await client.call("fs/readDirectory", { path: uri(`${root}/flat`) })).entries.length;
    },
  },
  {
    name: "copy",
    label: "`fs/copy` of a tree",
    async run(client, root) {
      const params = { sourcePath: uri(`${root}/tree`), destinationPath: uri(`${root}/copy`), recursive: true };
      await client.call("fs/copy", params);
      return countFiles(`${root}/copy`);
    },
  },
  {
    name: "remove",
    label: "`fs/remove` of the copy",
    async run(client, root, { files }) {
      await client.call("fs/remove", { path: uri(`${root}/copy`), recursive: true, force: false });
      return existsSync(`${root}/copy`) ? 0 : files;
    },
  },
  {
    name: "read",
    label: "`fs/readFile`, 380 MiB",
    async run(client, root) {
      return (await client.send("fs/readFile", { path: uri(`${root}/large`) })).length;
    },
  },
  {
    name: "write",
    label: "`fs/writeFile`, a message of 60 MB",
    async run(client, root, { messageBytes }) {
      await client.call("fs/writeFile", { path: uri(`${root}/written`), dataBase64: base64(messageBytes) });
      return statSync(`${root}/written`).size;
    },
  },
  {
    name: "stdin",
    label: "`process/write` to an unknown process, a message of 60 MB",
    async run(client, _root, { messageBytes }) {
      await client.send("process/write", { processId: "none", chunk: base64(messageBytes) });
      return messageBytes;
    },
  },
  {
    name: "quotes",
    label: "a message of 60 MB of escaped quotes",
    async run(client, _root, { messageBytes }) {
      await client.sendText(`{"id":1,"method":"none","params":{"text":"${repeated('\\"', messageBytes)}"}}`);
      return messageBytes;
    },
  },
  {
    name: "backslashes",
    label: "a message of 60 MB of backslashes",
    async run(client, _root, { messageBytes }) {
      await client.sendText(`{"id":1,"method":"none","params":{"text":"${repeated("\\\\", messageBytes)}"}}`);
      return messageBytes;
    },
  },
  {
    name: "unicode",
    label: "a message of 60 MB of two-byte characters",
    async run(client, _root, { messageBytes }) {
      await client.sendText(`{"id":1,"method":"none","params":{"text":"${repeated("é", messageBytes / 2)}"}}`);
      return messageBytes;
    },
  },
  {
    name: "values",
    label: "a message of 250,000 values",
    async run(client) {
      const text = Array.from({ length: 125_000 }, (_, at) => `{"k${at}":${at}}`).join(",");
      await client.sendText(`{"id":1,"method":"none","params":{"all":[${text}]}}`);
      return 250_000;
    },
  },
  {
    name: "spaces",
    label: "a message of 60 MB of white space",
    async run(client, _root, { messageBytes }) {
      await client.sendText(`{"id":1,"method":"none","params":{${" ".repeat(messageBytes)}}}`);
      return messageBytes;
    },
  },
];

/** A client that sends one request at a time, long ones in fragments. */
class Client {
  readonly #socket: WebSocket;
  #onMessage: (message: Buffer) => void = () => undefined;

  static async connect(url: string): Promise<Client> {
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 1024 * MIB });
    await new Promise<void>((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    const client = new Client(socket);
    await client.send("initialize", { clientName: "files-bench" });
    socket.send(JSON.stringify({ method: "initialized", params: {} }));
    return client;
  }

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (message: Buffer) => this.#onMessage(message));
  }

  // biome-ignore lint/suspicious/noExplicitAny: results of several methods
  async call(method: string, params: object): Promise<any> {
    const { result, error } = JSON.parse((await this.send(method, params)).toString());
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  send(method: string, params: object): Promise<Buffer> {
    return this.sendText(JSON.stringify({ id: 1, method, params }));
  }

  sendText(text: string): Promise<Buffer> {
    const bytes = Buffer.from(text);
    parentPort?.postMessage("started");
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#onMessage = (message) => {
      parentPort?.postMessage("finished");
      resolve(message);
    };
    this.#socket.once("close", () => reject(new Error("the server closed the connection")));
    for (let at = 0; at < bytes.length; at += FRAGMENT_BYTES)
      this.#socket.send(bytes.subarray(at, at + FRAGMENT_BYTES), {
        binary: false,
        fin: at + FRAGMENT_BYTES >= bytes.length,
      });
    return promise;
  }
}

interface Task {
  name: string;
  url: string;
  root: string;
  sizes: Sizes;
}

/** Runs in a worker thread. */
async function perform({ name, url, root, sizes }: Task): Promise<number> {
  const work = works.find((candidate) => candidate.name === name);
  const client = await Client.connect(url);
  const done = await work?.run(client, root, sizes);
  return done ?? 0;
}

interface Measured {
  seconds: number;
  waitMs: number;
  done: number;
}

/** Measures the last request that the worker sent. */
async function measure(task: Task): Promise<Measured> {
  let startedAt = performance.now();
  let seconds = 0;
  const worker = new Worker(new URL(import.meta.url), { workerData: task });
  const bystander = await Bystander.connect(task.url, { pauseMs: 3 });
  try {
    const done = await new Promise<number>((resolve, reject) => {
      worker.on("message", (message: "started" | "finished" | number) => {
        if (message === "started") {
          startedAt = performance.now();
          bystander.reset();
        } else if (message === "finished") seconds = (performance.now() - startedAt) / 1000;
        else resolve(message);
      });
      worker.once("error", reject);
    });
    return { seconds, waitMs: await bystander.longestWaitMs(), done };
  } finally {
    bystander.close();
    await worker.terminate();
  }
}

function prepare(root: string, { files, readMib }: Sizes): void {
  mkdirSync(join(root, "flat"));
  for (let at = 0; at < files; at++) {
    const directory = join(root, "tree", String(Math.floor(at / 100)));
    if (at % 100 === 0) mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, `${at}.txt`), "x".repeat(100));
    writeFileSync(join(root, "flat", `${at}.txt`), "");
  }
  writeFileSync(join(root, "large"), "");
  truncateSync(join(root, "large"), readMib * MIB);
}

async function measureServer(kind: ServerKind, selected: Work[], root: string, sizes: Sizes) {
  const measured = new Map<string, Measured>();
  const server = await ServerUnderTest.start(kind);
  try {
    // The second pass counts, because V8 compiles the code during the first one.
    for (const { name } of [...selected, ...selected])
      measured.set(name, await measure({ name, url: server.url, root, sizes }));
  } finally {
    await server.stop();
    rmSync(join(root, "copy"), { recursive: true, force: true });
  }
  return measured;
}

async function main(): Promise<void> {
  const { values: flags } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      only: { type: "string" },
      small: { type: "boolean", default: false },
      "no-peer": { type: "boolean", default: false },
      "no-write": { type: "boolean", default: false },
    },
  });
  const sizes = flags.small ? SMALL : FULL;
  const names = flags.only?.split(",");
  const selected = works.filter(({ name }) => names === undefined || names.includes(name));
  // In memory, because the time of a disk varies more than that of the servers.
  const root = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "pwf-"));
  try {
    prepare(root, sizes);
    const kinds = flags["no-peer"] ? [ourKind()] : [peerKind(temporaryHome()), ourKind()];
    const runs: Record<string, Map<string, Measured>[]> = { peer: [], ours: [] };
    for (let round = 0; round < Number(flags.rounds); round++)
      for (const kind of round % 2 === 0 ? kinds : kinds.toReversed())
        runs[kind.name]?.push(await measureServer(kind, selected, root, sizes));
    const result = (server: "peer" | "ours", name: string) => {
      const all = (runs[server] ?? []).flatMap((run) => run.get(name) ?? []);
      return {
        seconds: median(all.map(({ seconds }) => seconds)) ?? Number.NaN,
        waitMs: median(all.map(({ waitMs }) => waitMs)) ?? Number.NaN,
        done: all[0]?.done,
      };
    };
    const rows = selected.map(({ name, label }) => {
      const [peer, ours] = [result("peer", name), result("ours", name)];
      if (ours.done === 0 && name !== "idle") throw new Error(`${name}: procwire did nothing`);
      if (kinds.length > 1 && peer.done !== ours.done)
        throw new Error(`${name}: the peer did ${peer.done}, procwire ${ours.done}`);
      const ratio = cell(peer.seconds / ours.seconds, 2);
      const cells = [cell(peer.seconds, 2), cell(ours.seconds, 2), ratio === "" ? "" : `${ratio}x`];
      return [label, ...cells, cell(peer.waitMs, 0), cell(ours.waitMs, 0), String(ours.done)];
    });
    const head = ["work", "peer s", "procwire s", "ratio", "peer wait ms", "procwire wait ms", "work done"];
    const table = alignedTable(head, rows);
    console.log(table);
    if (flags.small || flags["no-write"] || flags["no-peer"] || names) return;
    const { cores, loadAtStart, node } = describeMachine();
    const date = new Date().toISOString().slice(0, 10);
    const text = `${sizes.files} files, ${cores} cores, Node ${node}, load ${loadAtStart}, ${date}.\n\n${table}`;
    replaceSection(join(import.meta.dirname, "../docs/performance.md"), "files", text, "# Performance\n");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

if (isMainThread) await main();
else parentPort?.postMessage(await perform(workerData as Task));

/** Formats a measured value; empty if the peer did not run. */
function cell(value: number, digits: number): string {
  return Number.isNaN(value) ? "" : value.toFixed(digits);
}
