import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { connectFromBrowser } from "../src/client/browser.ts";
import { NodeExecServerClient } from "../src/client/node/node-client.ts";
import type { ExecEvent, ExecProcess, StartParams } from "../src/exec/exec-process.ts";
import { run } from "../src/exec/run/run-program.ts";
import { waitFor } from "../src/exec/wait/wait-for-output.ts";
import { FaultProxy } from "../test/support/faults/fault-proxy.ts";

const CODEX = fileURLToPath(new URL("node_modules/.bin/codex", import.meta.url));
const skip = existsSync(CODEX) ? false : "THE REAL EXEC-SERVER IS NOT TESTED: run `npm install --prefix interop` first";
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const bytes = (value: string) => new TextEncoder().encode(value);

/** This client on the real Codex exec-server. */
describe("the client on the real exec-server", { skip, timeout: 600_000 }, () => {
  let codex: ChildProcess;
  let exited: Promise<unknown>;
  let home: string;
  let url: string;
  let client: NodeExecServerClient;
  let ids = 0;

  before(async () => {
    home = await mkdtemp(join(tmpdir(), "procwire-codex-"));
    codex = spawn(CODEX, ["exec-server", "--listen", "ws://127.0.0.1:0"], {
      env: { PATH: process.env.PATH, HOME: home, CODEX_HOME: home },
      stdio: ["ignore", "pipe", "ignore"],
    });
    exited = once(codex, "exit");
    assert.ok(codex.stdout);
    const [line] = await once(createInterface({ input: codex.stdout }), "line");
    url = String(line);
    client = await NodeExecServerClient.connectWebSocket({ url });
  });
  after(async () => {
    await client.close();
    codex.kill();
    await exited;
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  });

  const start = (argv: string[], params: Partial<StartParams> = {}): Promise<ExecProcess> =>
    client.start({
      processId: `proc-${++ids}`,
      argv,
      cwd: "/",
      env: { PATH: process.env.PATH ?? "/usr/bin:/bin" },
      tty: false,
      ...params,
    });
  const shell = (script: string, params?: Partial<StartParams>) => start(["/bin/sh", "-c", script], params);

  test("starts and exits a process", async () => {
    const process = await start(["true"]);
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("emits events", async () => {
    const script = "printf 'event output\\n'; sleep 0.1; printf 'event err\\n' >&2; sleep 0.1; exit 7";
    const process = await shell(script);
    assert.deepEqual((await collect(process)).map(summarize), [
      "1 stdout event output\n",
      "2 stderr event err\n",
      "3 exited 7",
      "4 closed",
    ]);
  });

  test("replays events after close", async () => {
    const process = await shell("printf 'late one\\n'; printf 'late two\\n'");
    const first = await collect(process);
    assert.deepEqual(await collect(process), first);
    assert.equal(outputOf(first), "late one\nlate two\n");
  });

  test("reads output after a write to a terminal", async () => {
    const process = await shell("IFS= read line; printf 'from-stdin:%s\\n' \"$line\"", { tty: true });
    await process.write(bytes("hello\n"));
    assert.match(outputOf(await collect(process)), /from-stdin:hello/);
  });

  test("reads output after a write to a pipe", async () => {
    const process = await shell("IFS= read line; printf 'from-stdin:%s\\n' \"$line\"", { pipeStdin: true });
    assert.deepEqual(await process.write(bytes("hello\n")), { status: "accepted" });
    assert.equal(outputOf(await collect(process)), "from-stdin:hello\n");
  });

  test("rejects a write without pipeStdin", async () => {
    const process = await shell("sleep 0.1; cat; echo eof");
    assert.deepEqual(await process.write(bytes("ignored\n")), { status: "stdinClosed" });
    assert.equal(outputOf(await collect(process)), "eof\n");
  });

  test("rejects calls that the server does not support by name, and keeps the connection", async () => {
    const process = await shell("sleep 100", { tty: true });
    for (const [call, what] of [
      [() => process.closeStdin(), "process/closeStdin"],
      [() => process.resize({ rows: 1, cols: 1 }), "process/resize"],
      [() => process.signal("SIGUSR1"), "signal SIGUSR1"],
      [() => process.wait({ until: { type: "port", port: 1 } }), "waiting for a port"],
      [() => client.call("process/snapshot", { processId: process.processId }), "process/snapshot"],
    ] as const)
      await assert.rejects(call(), { message: `${what} is not supported by this server` });
    assert.deepEqual(await client.call("environment/status", {}), { status: "ready" });
    await process.terminate();
  });

  test("waits and returns snapshots based on received events", async () => {
    const process = await shell("echo port 8080; read go; echo oops >&2; exit 3", { pipeStdin: true });
    const matched = await process.wait({ until: { type: "output", pattern: "port [0-9]+" } });
    assert.deepEqual([matched.reason, matched.match], ["matched", "port 8080"]);
    assert.equal((await process.wait({ timeoutMs: 10 })).reason, "timeout");
    await process.write(bytes("\n"));
    assert.equal((await process.wait()).exitCode, 3);
    const snapshot = await process.snapshot();
    assert.deepEqual([text(snapshot.stdout), snapshot.running], ["port 8080\n", false]);
  });

  test("interrupts a process, and terminates it gracefully and by force", async () => {
    const polite = await shell("trap 'echo int; exit 4' INT; echo ready; while :; do sleep 0.05; done");
    await waitFor(polite, "ready");
    assert.deepEqual(await polite.terminate({ type: "graceful", timeoutMs: 10_000 }), { running: true });
    assert.equal((await polite.wait()).exitCode, 4);
    const stubborn = await shell("trap '' INT TERM; echo ready; while :; do sleep 0.05; done");
    await waitFor(stubborn, "ready");
    assert.deepEqual(await stubborn.terminate(), { running: true });
    assert.equal((await stubborn.wait()).exitCode, 137);
    const slow = await run(client.backend, ["sleep", "100"], { timeoutMs: 100, cwd: "/" });
    assert.notEqual(slow.exitCode, 0);
  });

  test("transfers stdin and output byte for byte, and applies backpressure for a slow reader", async () => {
    const data = randomBytes(6_000_000);
    const process = await start(["head", "-c", String(data.length)], { pipeStdin: true });
    const hash = createHash("sha256");
    const events = process.events({ lossless: true });
    const writing = process.write(data);
    const first = await events.next();
    assert.ok(first.value?.type === "output");
    hash.update(first.value.chunk);
    for await (const event of events) {
      assert.notEqual(event.type, "gap");
      if (event.type === "output") hash.update(event.chunk);
    }
    await writing;
    assert.equal(hash.digest("hex"), createHash("sha256").update(data).digest("hex"));
  });

  test("reads and writes files, including files that are too large for one message", async () => {
    const path = join(home, "file");
    await client.files.writeFile(path, "grüße");
    assert.equal(await client.files.readText(path), "grüße");
    const large = randomBytes(17_000_000);
    await client.files.writeFile(path, large);
    assert.ok(large.equals(await client.files.readFile(path)));
    await assert.rejects(client.files.readFile(join(home, "none")), { code: "ENOENT", rpcCode: -32004 });
    const appeared = client.files.waitForPath(join(home, "later"));
    await client.files.writeFile(join(home, "later"), "");
    await appeared;
  });

  test("resumes after lost connections without losing or duplicating a byte", async () => {
    await using proxy = await FaultProxy.before(url);
    const cut = await NodeExecServerClient.connectWebSocket({ url: proxy.url });
    const lines = Array.from({ length: 300 }, (_, index) => `line ${index}\n`).join("");
    const process = await cut.start({
      processId: "cut",
      argv: ["/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.003; done; cat"],
      cwd: "/",
      env: { PATH: globalThis.process.env.PATH ?? "" },
      tty: false,
      pipeStdin: true,
    });
    let seen = "";
    let cuts = 0;
    const input = Array.from({ length: 20 }, (_, index) => `<${index}>`);
    const writing = (async () => {
      for (const part of input) await process.write(bytes(part));
    })();
    for await (const event of process.events()) {
      assert.ok(event.type === "output", JSON.stringify(event));
      seen += text(event.chunk);
      if (seen.length > (cuts + 1) * 150 && cuts < 15) {
        cuts++;
        proxy.cut({ reset: cuts % 2 === 0 });
      }
      if (seen.length === lines.length + input.join("").length) break;
    }
    await writing;
    assert.equal(seen, lines + input.join(""));
    assert.equal(cuts, 15);
    await process.terminate();
    await cut.close();
  });

  test("also works as the browser client", async () => {
    const page = await connectFromBrowser({ url });
    const { stdout } = await run(page.backend, ["echo", "hi"]);
    assert.equal(stdout, "hi\n");
    await page.close();
  });

  test("rejects all calls at once when the server exits", async () => {
    const own = await NodeExecServerClient.connectWebSocket({ url });
    const process = await own.start({
      processId: "gone",
      argv: ["sleep", "100"],
      cwd: "/",
      env: { PATH: globalThis.process.env.PATH ?? "" },
      tty: false,
    });
    const reading = process.read({ waitMs: 60_000 });
    codex.kill("SIGKILL");
    const { failure, closed } = await reading;
    assert.match(failure ?? "", /^exec-server transport disconnected/);
    assert.equal(closed, true);
    await assert.rejects(process.write(bytes("x")), /exec-server transport disconnected/);
  });
});

async function collect(process: ExecProcess): Promise<ExecEvent[]> {
  const events: ExecEvent[] = [];
  for await (const event of process.events()) events.push(event);
  return events;
}

function outputOf(events: ExecEvent[]): string {
  return events.map((event) => (event.type === "output" ? text(event.chunk) : "")).join("");
}

function summarize(event: ExecEvent): string {
  if (event.type === "output") return `${event.seq} ${event.stream} ${text(event.chunk)}`;
  if (event.type === "exited") return `${event.seq} exited ${event.exitCode}`;
  return event.type === "closed" ? `${event.seq} closed` : event.type;
}
