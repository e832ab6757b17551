import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { ExecServerClient as UniversalClient } from "../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { run } from "../../src/exec/run/run-program.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { type Fault, FaultProxy } from "../support/faults/fault-proxy.ts";
import { missing, SOCKET_KINDS, type SocketServer, serveOn } from "../support/servers/sockets.ts";
import { repetitions } from "../support/system/repetitions.ts";

const TIMEOUT = { timeout: 600_000 };
const CUTS = repetitions(300);
const CHATTER = fileURLToPath(new URL("../fixtures/programs/chatter.ts", import.meta.url));
const PATH = process.env.PATH ?? "/usr/bin:/bin";
/** Shorter delays than a real network needs, so that 300 cuts fit into a test. */
const QUICK = { firstDelayMs: 5, maxDelayMs: 50 };

const params = (processId: string, argv: string[], options: Partial<StartParams> = {}): StartParams => ({
  processId,
  argv,
  cwd: "/",
  env: { PATH },
  tty: false,
  pipeStdin: true,
  ...options,
});

for (const kind of SOCKET_KINDS) {
  describe(`faulty network to a server on ${kind}`, { ...TIMEOUT, skip: missing(kind) }, () => {
    let listening: SocketServer;
    before(async () => {
      listening = await serveOn(kind);
    });
    after(() => listening.close());

    test(`delivers every byte once and in order over ${CUTS} cuts at random bytes`, async (t) => {
      const seed = randomBytes(4).readUInt32LE();
      t.diagnostic(`seed ${seed}`);
      const random = generator(seed);
      await using proxy = await FaultProxy.before(listening.url);
      const client = await connectThrough(proxy);
      proxy.faultFor = () => (proxy.cuts < CUTS ? randomFault(random) : {});
      proxy.cut();
      const isOver = () => proxy.cuts >= CUTS;
      const results = await Promise.all([
        chat(client, "chatter-1", random, isOver),
        chat(client, "chatter-2", random, isOver),
        runMany(client, isOver),
      ]);
      t.diagnostic(`${proxy.cuts} cuts, ${JSON.stringify(results)}`);
      assert.ok(proxy.cuts >= CUTS);
      await client.close();
    });

    test("takes over the session from a half-open connection", async () => {
      await using proxy = await FaultProxy.before(listening.url);
      const client = await connectThrough(proxy);
      const process = await client.start(params("half-open", ["cat"]));
      proxy.cut({ side: "client" });
      await process.write(new TextEncoder().encode("still here"));
      await waitFor(process, "still here");
      await process.terminate();
      await client.close();
    });

    test("survives a stall and a delay without losing the connection", async () => {
      await using proxy = await FaultProxy.before(listening.url);
      proxy.faultFor = () => ({ delayMs: 5, pieceBytes: 700 });
      const client = await connectThrough(proxy);
      const process = await client.start(params("stalled", ["cat"]));
      proxy.stall();
      const data = randomBytes(200_000);
      const writing = process.write(data);
      setTimeout(() => proxy.resume(), 50);
      await writing;
      await process.closeStdin();
      const hash = createHash("sha256");
      for await (const event of process.events({ lossless: true }))
        if (event.type === "output") hash.update(event.chunk);
      assert.equal(hash.digest("hex"), createHash("sha256").update(data).digest("hex"));
      assert.equal(proxy.connections, 1);
      await client.close();
    });

    test("fails all calls if every reconnect is refused", async () => {
      await using proxy = await FaultProxy.before(listening.url);
      const client = await NodeExecServerClient.connectWebSocket({
        url: proxy.url,
        reconnect: { ...QUICK, deadlineMs: 100 },
      });
      const process = await client.start(params("refused", ["cat"]));
      const reading = process.read({ waitMs: 60_000 });
      await proxy.refuse();
      const { failure, closed } = await reading;
      assert.match(failure ?? "", /^exec-server transport disconnected: .*ECONNREFUSED/);
      assert.equal(closed, true);
      await assert.rejects(client.list(), /^DisconnectedError: exec-server transport disconnected/);
    });

    test("loses no output if the connection is cut while a lossless reader is idle", async () => {
      await using proxy = await FaultProxy.before(listening.url);
      const client = await connectThrough(proxy);
      const size = 10_000_000;
      const process = await client.start(params("large", ["/bin/sh", "-c", `head -c ${size} /dev/zero | tr '\\0' y`]));
      const events = process.events({ lossless: true });
      let count = 0;
      let cuts = 0;
      for await (const event of events) {
        assert.notEqual(event.type, "gap");
        assert.notEqual(event.type, "failed");
        if (event.type !== "output") continue;
        count += event.chunk.length;
        if (count > (cuts + 1) * 1_000_000) {
          cuts++;
          proxy.cut({ reset: cuts % 2 === 0 });
        }
      }
      assert.equal(count, size);
      assert.ok(cuts >= 9);
      await client.close();
    });

    test("resumes a session and its processes by id in a later client", async () => {
      const first = await NodeExecServerClient.connectWebSocket({ url: listening.url });
      const process = await first.start(params("kept", ["/bin/sh", "-c", "echo one; read go; echo two"]));
      await waitFor(process, "one");
      const { sessionId } = first;
      assert.ok(sessionId !== null);
      await first.close();
      const second = await NodeExecServerClient.connectWebSocket({
        url: listening.url,
        resumeSessionId: sessionId,
        takeOver: true,
      });
      const same = await second.backend.attach("kept");
      await same.write(new TextEncoder().encode("\n"));
      const seen: string[] = [];
      for await (const event of same.events())
        if (event.type === "output") seen.push(new TextDecoder().decode(event.chunk));
      assert.deepEqual(seen, ["one\n", "two\n"]);
      await second.close();
    });
  });
}

function connectThrough(proxy: FaultProxy): Promise<UniversalClient> {
  return NodeExecServerClient.connectWebSocket({ url: proxy.url, reconnect: QUICK });
}

/** Exchanges data with a process and compares both directions with the counts it reports. */
async function chat(
  client: UniversalClient,
  processId: string,
  random: () => number,
  isOver: () => boolean,
): Promise<{ writtenBytes: number; givenBytes: number }> {
  const child = await client.start(params(processId, [process.execPath, CHATTER, String(processId.length)]));
  const received = createHash("sha256");
  let receivedBytes = 0;
  let summary = "";
  const reading = (async () => {
    for await (const event of child.events({ lossless: true })) {
      assert.ok(event.type !== "gap" && event.type !== "failed", JSON.stringify(event));
      if (event.type !== "output") continue;
      if (event.stream === "stderr") {
        summary += new TextDecoder().decode(event.chunk);
      } else {
        received.update(event.chunk);
        receivedBytes += event.chunk.length;
      }
    }
  })();
  const sent = createHash("sha256");
  let sentBytes = 0;
  while (!isOver()) {
    const data = new Uint8Array(1 + Math.floor(random() * 20_000)).fill(Math.floor(random() * 256));
    sent.update(data);
    sentBytes += data.length;
    assert.deepEqual(await child.write(data), { status: "accepted" });
  }
  assert.deepEqual(await child.closeStdin(), { status: "accepted" });
  await reading;
  const report: Record<string, unknown> = JSON.parse(summary);
  assert.deepEqual(
    { writtenBytes: receivedBytes, written: received.digest("hex") },
    { writtenBytes: report.writtenBytes, written: report.written },
  );
  assert.deepEqual(
    { givenBytes: sentBytes, given: sent.digest("hex") },
    { givenBytes: report.givenBytes, given: report.given },
  );
  return { writtenBytes: receivedBytes, givenBytes: sentBytes };
}

/** Runs short processes one after another: each starts once, reads its input once and exits with its own code. */
async function runMany(client: UniversalClient, isOver: () => boolean): Promise<number> {
  let count = 0;
  for (; !isOver(); count++) {
    const script = `cat; echo out ${count}; echo err >&2; exit ${count % 7}`;
    const result = await run(client.backend, ["/bin/sh", "-c", script], { input: `in ${count} ` });
    assert.deepEqual(
      [result.stdout, result.stderr, result.exitCode],
      [`in ${count} out ${count}\n`, "err\n", count % 7],
    );
  }
  return count;
}

/** A random cut between the first byte of the handshake and later traffic, in either direction. */
function randomFault(random: () => number): Fault {
  return {
    cutAfter: {
      bytes: Math.floor(Math.exp(random() * Math.log(300_000))),
      direction: random() < 0.6 ? "toClient" : "toServer",
    },
    side: random() < 0.3 ? "client" : "both",
    reset: random() < 0.5,
    ...(random() < 0.2 && { pieceBytes: 1 + Math.floor(random() * 2000) }),
  };
}

function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
