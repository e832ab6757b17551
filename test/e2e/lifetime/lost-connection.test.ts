import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { CuttingProxy } from "../../support/faults/cutting-proxy.ts";
import { sh, WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import { type ServeChild, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

/** Connections that are cut during output, and clients that resume and read the rest. */

let server: ServeChild;
before(async () => {
  server = await serve();
});
after(() => server.stop());

/** A minimal correct client: stores events by sequence number, resumes its session, and reads missed events. */
class Follower {
  readonly chunks = new Map<number, Buffer>();
  readonly #proxy: CuttingProxy;
  readonly #extensions: string[];
  #client: WireClient | null = null;
  #processed = 0;
  sessionId = "";
  resumes = 0;
  exitCode: unknown = undefined;
  closed = false;
  gaps: unknown[] = [];

  constructor(proxy: CuttingProxy, extensions: string[]) {
    this.#proxy = proxy;
    this.#extensions = extensions;
  }

  async client(): Promise<WireClient> {
    if (this.#client && !this.#client.isEnded) return this.#client;
    for (;;) {
      const client = await this.#connect();
      if (client) return client;
    }
  }

  /** Returns null if the connection was cut again during the handshake. */
  async #connect(): Promise<WireClient | null> {
    const { sessionId } = this;
    try {
      const client = new WireClient(await webSocketWire(this.#proxy.url));
      this.#processed = 0;
      this.#client = client;
      const resume = sessionId === "" ? {} : { resumeSessionId: sessionId, takeOver: true };
      await client.handshake({ extensions: this.#extensions, ...resume });
      if (sessionId !== "") {
        this.resumes++;
        await this.#readMissed(client);
      }
      this.sessionId = client.sessionId;
      return client;
    } catch {
      return null;
    }
  }

  async #readMissed(client: WireClient): Promise<void> {
    const result = await client.call("process/read", { processId: "p", afterSeq: this.#contiguous() });
    if (result.gap) this.gaps.push(result.gap);
    for (const { seq, chunk } of result.chunks as { seq: number; chunk: string }[]) {
      this.chunks.set(seq, Buffer.from(chunk, "base64"));
    }
    if (result.exited) this.exitCode = result.exitCode;
    if (result.closed) this.closed = true;
    this.#acknowledge(client);
  }

  /** Follows until the process is closed. */
  async follow(): Promise<void> {
    while (!this.closed) {
      const client = await this.client();
      this.#process(client);
      if (!this.closed)
        await client.until("more", () => client.messages.length > this.#processed).catch(() => undefined);
    }
  }

  bytes(): Buffer {
    return Buffer.concat([...this.chunks].sort(([a], [b]) => a - b).map(([, bytes]) => bytes));
  }

  #process(client: WireClient): void {
    let hasNewEvents = false;
    for (; this.#processed < client.messages.length; this.#processed++) {
      const { method, params } = client.messages[this.#processed] ?? {};
      if (params?.processId !== "p") continue;
      hasNewEvents = true;
      if (method === "process/output") this.chunks.set(Number(params.seq), Buffer.from(String(params.chunk), "base64"));
      if (method === "process/exited") this.exitCode = params.exitCode;
      if (method === "process/closed") this.closed = true;
    }
    if (hasNewEvents) this.#acknowledge(client);
  }

  #acknowledge(client: WireClient): void {
    if (this.#extensions.includes("outputAck") && !client.isEnded) {
      client.notify("process/ack", { processId: "p", seq: this.#contiguous() });
    }
  }

  /** Returns the last sequence number before the first missing one. */
  #contiguous(): number {
    let seq = 0;
    while (this.chunks.has(seq + 1)) seq++;
    return seq;
  }
}

/** Numbered lines, so that lost, duplicated and reordered output shows. */
const LINES = 300_000;
const script = `i=0; while [ $i -lt 300 ]; do seq -f '%012.0f' $((i*1000)) $((i*1000+999)); i=$((i+1)); done; exit 7`;
function expectedDigest(): string {
  const hash = createHash("sha256");
  for (let n = 0; n < LINES; n++) hash.update(`${String(n).padStart(12, "0")}\n`);
  return hash.digest("hex");
}

describe("with acknowledgements", () => {
  test("a repeatedly cut connection loses nothing of four megabytes", async () => {
    await using proxy = await CuttingProxy.to(server.url);
    const follower = new Follower(proxy, ["outputAck"]);
    const first = await follower.client();
    // Each cut follows a different number of bytes: inside frames, between frames, and during the response to a read.
    const cuts = [1, 700, 70_000, 300_000, 5, 1_000_000, 450_000, 31, 2_000_000, 123_456];
    proxy.onForward = () => {
      const next = cuts[0];
      if (next !== undefined && proxy.forwarded >= next) {
        cuts.shift();
        proxy.cut();
      }
    };
    await first.start("p", sh(script)).catch(() => undefined);
    await follower.follow();
    assert.equal(follower.exitCode, 7);
    assert.deepEqual(follower.gaps, []);
    assert.ok(follower.resumes >= 5, `only ${follower.resumes} cuts happened`);
    const bytes = follower.bytes();
    assert.equal(bytes.length, 13 * LINES);
    assert.equal(createHash("sha256").update(bytes).digest("hex"), expectedDigest());
  });

  test("a disconnected client applies backpressure to the process, and receives everything after it resumes", async () => {
    await using proxy = await CuttingProxy.to(server.url);
    const follower = new Follower(proxy, ["outputAck"]);
    const client = await follower.client();
    await client.start("p", sh(script));
    await client.outputContains("p", "000000000100\n");
    proxy.cut();
    await client.ended();
    // Long enough for all of it to be written without backpressure.
    await using watcher = await server.connect();
    await watcher.handshake();
    await watcher.start("spin", sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"));
    await watcher.finished("spin");
    await follower.follow();
    assert.deepEqual(follower.gaps, []);
    assert.equal(createHash("sha256").update(follower.bytes()).digest("hex"), expectedDigest());
  });
});

describe("without acknowledgements, like the reference client", () => {
  test("a client reads all of 1.3 MB of output after a cut", async () => {
    await using proxy = await CuttingProxy.to(server.url);
    const follower = new Follower(proxy, []);
    const client = await follower.client();
    let cut = false;
    proxy.onForward = () => {
      if (cut || proxy.forwarded < 600_000) return;
      cut = true;
      proxy.cut();
    };
    // Writes slowly, so that the output in transit when the connection is lost is less than the retained output.
    const slow =
      "i=0; while [ $i -lt 100 ]; do seq -f '%012.0f' $((i*1000)) $((i*1000+999)); sleep 0.005; i=$((i+1)); done; exit 7";
    await client.start("p", sh(slow));
    await follower.follow();
    assert.ok(cut);
    assert.deepEqual(follower.gaps, []);
    assert.equal(follower.bytes().length, 1_300_000);
    assert.equal(follower.exitCode, 7);
  });
});

describe("a half-open connection", () => {
  test("is replaced by a client that resumes the session, before the server notices the loss", async () => {
    const old = await server.connect();
    await old.handshake();
    await old.start("p", sh("echo one; read x; echo $x; read y"), { pipeStdin: true });
    await old.outputContains("p", "one");
    old.pause();
    await using next = await server.connect();
    const refused = await next.refused("initialize", { clientName: "x", resumeSessionId: old.sessionId });
    assert.equal(refused.code, -32010);
    await next.handshake({ resumeSessionId: old.sessionId, takeOver: true });
    await next.write("p", "two\n");
    await next.outputContains("p", "two");
    old.resume();
    assert.equal(await old.ended(), 1008);
    assert.ok(!old.output("p").includes("two"));
  });
});

test("a session can be resumed after its client closed the connection properly", async () => {
  const first = await server.connect();
  await first.handshake();
  await first.start("p", sh("read x; echo got $x"), { pipeStdin: true });
  await first.close();
  await using second = await server.connect();
  await second.handshake({ resumeSessionId: first.sessionId });
  await second.write("p", "it\n");
  assert.equal((await second.finished("p")).output, "got it\n");
});

test("a write that is resent on the next connection is written once", async () => {
  const first = await server.connect();
  await first.handshake();
  await first.start("p", ["cat"], { pipeStdin: true });
  assert.equal(await first.write("p", "once\n", "w1"), "accepted");
  first.cut();
  await first.ended();
  await using second = await server.connect();
  // The server may not have noticed the lost connection yet.
  await until("the session is free", async () => {
    const { error } = await second.request("initialize", {
      clientName: "x",
      resumeSessionId: first.sessionId,
    });
    return error === undefined;
  });
  second.notify("initialized");
  assert.equal(await second.write("p", "once\n", "w1"), "accepted");
  await second.call("process/closeStdin", { processId: "p" });
  await until("the end", async () => (await second.call("process/read", { processId: "p" })).closed === true);
  const { chunks } = (await second.call("process/read", { processId: "p" })) as {
    chunks: { chunk: string }[];
  };
  assert.equal(chunks.map(({ chunk }) => Buffer.from(chunk, "base64").toString()).join(""), "once\n");
});
