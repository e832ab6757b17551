/**
 * Random requests from one seed: real methods with valid, unusual or invalid params, over raw WebSockets that are cut,
 * stalled or half-closed at any moment. The fuzzer waits for no response, so that requests overlap.
 */

import { connect, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

export interface FuzzOptions {
  url: string;
  seed: number;
  /** The only directory whose files the requests change. */
  directory: string;
  connections?: number;
  steps?: number;
}

/** Sends all requests, then closes every connection. */
export async function fuzz(options: FuzzOptions): Promise<void> {
  const random = new Random(options.seed);
  const runs = Array.from({ length: options.connections ?? 3 }, () => runConnection(options, random.fork()));
  await Promise.all(runs);
}

async function runConnection(options: FuzzOptions, random: Random): Promise<void> {
  const steps = options.steps ?? 60;
  let socket = await open(options.url, random, null);
  let session: string | null = null;
  for (let step = 0; step < steps; step++) {
    session = socket.sessionId ?? session;
    if (random.chance(0.05)) {
      await socket.leave(random);
      socket = await open(options.url, random, random.chance(0.7) ? session : null);
    }
    if (random.chance(0.05)) socket.stall(random.chance(0.5));
    socket.send(random.chance(0.04) ? random.pick(NONSENSE) : request(random, options.directory), random);
    if (random.chance(0.3)) await pause(random.below(random.chance(0.1) ? 120 : 8));
  }
  await socket.leave(random);
}

const NONSENSE = [
  "",
  "{",
  "null",
  "[]",
  '{"id":1}',
  '{"id":{},"method":"process/list"}',
  '{"method":"process/ack","params":{"processId":"p0","seq":99999999}}',
  '{"method":"process/ack","params":{"processId":"p1","seq":1}}',
];

const SCRIPTS = [
  "exit 3",
  "echo hi",
  "cat",
  "cat; exit 1",
  "exec sleep 300",
  "trap '' TERM INT HUP; sleep 300",
  "yes",
  "yes | head -c 3000000",
  "head -c 5",
  "exec <&-; sleep 300",
  "exec >&- 2>&-; sleep 300",
  "sleep 0.02 & exit 0",
  "setsid sleep 300 & exit 0",
  "setsid sh -c 'sleep 0.05; echo late' & exit 0",
  "(sleep 0.01; (sleep 0.01 &) ) & exit 0",
  "kill -9 $$",
  "kill -STOP $$; echo on",
  "sleep 300 & wait",
  "stty raw -echo; cat",
  "stty raw; sleep 300",
  "printf x; exec cat >/dev/null",
  "exec 3>/dev/tty; sleep 0.1 & exec 0<&- 1>&- 2>&- 3>&-; sleep 0.1",
  "while :; do echo line; sleep 0.001; done",
  "i=0; while [ $i -lt 20 ]; do (exit 0) & i=$((i+1)); done; exec sleep 0.1",
];

const SIGNALS =
  "interrupt SIGTERM SIGKILL SIGSTOP SIGCONT SIGHUP SIGINT SIGQUIT SIGTTIN SIGWINCH SIGPIPE SIGCHLD NOPE TERM SIGRTMIN+1".split(
    " ",
  );

function request(random: Random, directory: string): string {
  const id = random.below(10_000);
  const processId = `p${random.below(5)}`;
  const count = () => random.pick([0, 1, 2, 10, 100, 65535, 2 ** 31, 2 ** 32 + 1, 2 ** 53, -1, 1.5, "x", null]);
  const size = { rows: count(), cols: count() };
  const file = () => `file://${directory}/${random.pick(["a", "b", "c/d", "c", "link", "", "fifo", "c/d/e"])}`;
  const text = () => Buffer.alloc(random.pick([0, 1, 5, 70, 5_000, 300_000]), "x\n").toString("base64");
  const make: [method: string, params: () => Record<string, unknown>][] = [
    [
      "process/start",
      () => ({
        processId,
        argv: random.chance(0.9) ? ["/bin/sh", "-c", random.pick(SCRIPTS)] : random.pick([[], [""], ["nope"]]),
        cwd: random.chance(0.95) ? `file://${directory}` : "file:///nowhere",
        env: { PATH: "/usr/bin:/bin" },
        tty: random.chance(0.4),
        pipeStdin: random.chance(0.7),
        ...(random.chance(0.3) ? { size } : {}),
        ...(random.chance(0.2) ? { timeoutMs: random.pick([0, 1, 20, 2 ** 40]) } : {}),
      }),
    ],
    [
      "command/exec",
      () => ({
        argv: ["/bin/sh", "-c", random.pick(SCRIPTS)],
        cwd: directory,
        env: {},
        tty: random.chance(0.5),
      }),
    ],
    ["command/exec/write", () => ({ sessionId: `session-${random.below(3)}`, chunk: text() })],
    ["command/exec/terminate", () => ({ sessionId: `session-${random.below(3)}` })],
    [
      "process/write",
      () => ({ processId, chunk: text(), ...(random.chance(0.5) ? { writeId: `w${random.below(3)}` } : {}) }),
    ],
    ["process/read", () => ({ processId, afterSeq: count(), maxBytes: count(), waitMs: random.pick([0, 5, 2 ** 40]) })],
    ["process/signal", () => ({ processId, signal: random.pick(SIGNALS) })],
    [
      "process/terminate",
      () => ({
        processId,
        ...(random.chance(0.5) ? { mode: { type: "graceful", timeoutMs: random.pick([0, 1, 30, 2 ** 45]) } } : {}),
      }),
    ],
    ["process/closeStdin", () => ({ processId })],
    ["process/resize", () => ({ processId, size })],
    [
      "process/wait",
      () => ({
        processId,
        until: random.pick<unknown>([
          { type: "exit" },
          { type: "output", pattern: random.pick(["h", "^$", "(", "(x+)+y", "line"]) },
          { type: "idle", quietMs: random.pick([0, 1, 50, 2 ** 45]) },
          { type: "port", port: random.pick([0, 1, 65535]) },
          { type: "bytes", count: count() },
          null,
        ]),
        afterSeq: count(),
        ...(random.chance(0.5) ? { timeoutMs: random.pick([0, 1, 40, 2 ** 45]) } : {}),
      }),
    ],
    ["process/snapshot", () => ({ processId })],
    ["process/list", () => ({ allSessions: random.chance(0.5) })],
    ["environment/info", () => ({})],
    ["fs/readFile", () => ({ path: file(), followSymlinks: random.chance(0.7) })],
    ["fs/writeFile", () => ({ path: file(), dataBase64: text(), followSymlinks: random.chance(0.7) })],
    ["fs/createDirectory", () => ({ path: file(), recursive: random.chance(0.5) })],
    ["fs/getMetadata", () => ({ path: file() })],
    ["fs/readDirectory", () => ({ path: file() })],
    [
      "fs/walk",
      () => ({
        path: file(),
        options: { maxDepth: 5, maxDirectories: count(), maxEntries: 100, followDirectorySymlinks: true },
      }),
    ],
    ["fs/remove", () => ({ path: `${file()}/x`, recursive: random.chance(0.5), force: random.chance(0.5) })],
    ["fs/copy", () => ({ sourcePath: file(), destinationPath: file(), recursive: random.chance(0.5) })],
    ["fs/open", () => ({ handleId: `h${random.below(3)}`, path: file(), mode: random.pick(["read", "replace"]) })],
    [
      "fs/readBlock",
      () => ({ handleId: `h${random.below(3)}`, offset: count(), len: random.pick([0, 1, 5000, 2 ** 40]) }),
    ],
    ["fs/writeBlock", () => ({ handleId: `h${random.below(3)}`, offset: random.below(5000), chunk: text() })],
    ["fs/close", () => ({ handleId: `h${random.below(3)}` })],
    ["fs/watchMissing", () => ({ watchId: random.below(100), missing: [file(), file()] })],
    [
      "http/request",
      () => ({
        method: "GET",
        url: "http://127.0.0.1:1/",
        requestId: `r${id}`,
        streamResponse: random.chance(0.5),
      }),
    ],
  ];
  // Starts a process more often than other requests, because most requests need a process.
  const [method, params] = random.pick(random.chance(0.3) ? make.slice(0, 1) : make);
  return JSON.stringify({ id, method, params: params() });
}

class FuzzSocket {
  readonly #socket: Socket;
  #received = "";
  sessionId: string | null = null;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => {
      if (this.sessionId !== null) return;
      this.#received = (this.#received + bytes.toString("latin1")).slice(-4096);
      this.sessionId = /"sessionId":"([^"]+)"/.exec(this.#received)?.[1] ?? null;
    });
  }

  send(text: string, random: Random): void {
    const frame = maskedText(text);
    // Sometimes sends the frame in two writes, or only its first bytes.
    const at = random.chance(0.1) ? random.below(frame.length) : frame.length;
    this.#socket.write(frame.subarray(0, at));
    if (at < frame.length && random.chance(0.9)) this.#socket.write(frame.subarray(at));
  }

  stall(on: boolean): void {
    if (on) this.#socket.pause();
    else this.#socket.resume();
  }

  async leave(random: Random): Promise<void> {
    const socket = this.#socket;
    const how = random.below(4);
    if (how === 0) socket.end();
    if (how === 1) socket.end(Buffer.from([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]));
    if (how === 2) socket.resetAndDestroy();
    if (how < 2 && random.chance(0.5)) await pause(random.below(30));
    socket.destroy();
  }
}

async function open(url: string, random: Random, resumeSessionId: string | null): Promise<FuzzSocket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const fuzzed = new FuzzSocket(socket);
  await new Promise<void>((resolve) => {
    socket.once("connect", resolve);
    socket.once("close", () => resolve());
  });
  socket.write(
    `GET / HTTP/1.1\r\nHost: ${hostname}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
  );
  await new Promise<void>((resolve) => {
    socket.once("data", () => resolve());
    socket.once("close", () => resolve());
  });
  const extensions = random.pick([[], ["outputAck"], ["started", "failed"]]);
  const takeOver = random.chance(0.5);
  const params = { clientName: "fuzz", extensions, takeOver, ...(resumeSessionId && { resumeSessionId }) };
  socket.write(maskedText(JSON.stringify({ id: 0, method: "initialize", params })));
  socket.write(maskedText('{"method":"initialized"}'));
  return fuzzed;
}

/** Masks with zeros, which leaves the text unchanged. */
function maskedText(text: string): Buffer {
  const payload = Buffer.from(text);
  const long = payload.length > 65535;
  const head = Buffer.alloc(payload.length < 126 ? 6 : long ? 14 : 8);
  head[0] = 0x81;
  if (payload.length < 126) head[1] = 0x80 | payload.length;
  else if (!long) {
    head[1] = 0x80 | 126;
    head.writeUInt16BE(payload.length, 2);
  } else {
    head[1] = 0x80 | 127;
    head.writeBigUInt64BE(BigInt(payload.length), 2);
  }
  return Buffer.concat([head, payload]);
}

/** Generates the same numbers for the same seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  fork(): Random {
    return new Random(Math.floor(this.next() * 2 ** 32));
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(from: readonly T[]): T {
    const found = from[this.below(from.length)];
    if (found === undefined) throw new Error("nothing to pick from");
    return found;
  }
}
