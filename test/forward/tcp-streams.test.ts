import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, createServer, Socket } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { ByteStream } from "../../src/forward/byte-stream.ts";
import { connectAddress, listenAddress } from "../../src/forward/tcp-streams.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

const nothing = { data: () => undefined, end: () => undefined, close: () => undefined };

interface Connected {
  stream: ByteStream;
  /** Does not end its own direction first. */
  peer: Socket;
  /** Resolves when the peer can no longer write to the stream. */
  wasReset(): Promise<void>;
}

async function connected(t: TestContext): Promise<Connected> {
  const listener = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  t.after(() => listener.close());
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  const accepted = once(listener, "connection");
  const stream = await connectAddress({ host: "127.0.0.1", port }, new AbortController().signal);
  const [peer] = await accepted;
  assert.ok(peer instanceof Socket);
  t.after(() => peer.destroy());
  stream.open(nothing);
  const errors: (string | undefined)[] = [];
  peer.on("error", ({ code }: NodeJS.ErrnoException) => errors.push(code)).resume();
  const wasReset = async () => {
    // A peer that has read the end of the stream notices a reset only when it writes.
    await until("the peer is reset", () => {
      if (errors.length === 0) peer.write("x");
      return errors.length > 0;
    });
    assert.match(String(errors), /^(ECONNRESET|EPIPE)$/);
  };
  return { stream, peer, wasReset };
}

test("a TCP stream that is closed with a reason is reset", async (t) => {
  const { stream, wasReset } = await connected(t);
  stream.close("lost");
  await wasReset();
});

// Node cannot reset a socket while its shutdown is pending. It leaves the socket open, and the process then spins
// forever on exit.
for (const ticks of [0, 1, 2, 3]) {
  test(`a TCP stream that is closed with a reason ${ticks} ticks after its own direction ended is reset`, async (t) => {
    const { stream, wasReset } = await connected(t);
    stream.end();
    for (let tick = 0; tick < ticks; tick++) await new Promise<void>((resolve) => process.nextTick(resolve));
    stream.close("lost");
    await wasReset();
  });
}

test("a TCP stream that is closed with a reason while its last bytes are unsent is reset", async (t) => {
  const { stream, peer, wasReset } = await connected(t);
  peer.pause();
  stream.write(new Uint8Array(64 * 1024 * 1024)).catch(() => undefined);
  stream.end();
  stream.close("lost");
  peer.resume();
  await wasReset();
});

test("a stream of a Unix socket closes with a reason on either side, and the listener continues", async () => {
  using scratch = scratchDirectory();
  const path = join(scratch.path, "socket");
  const listener = await listenAddress({ path }, (accepted) => accepted.close("refused"));
  using _ = { [Symbol.dispose]: () => listener.close() };
  for (let count = 0; count < 2; count++) {
    const stream = await connectAddress({ path }, new AbortController().signal);
    const closed = Promise.withResolvers<void>();
    stream.open({ data: () => undefined, end: () => stream.end(), close: () => closed.resolve() });
    await closed.promise;
    const left = await connectAddress({ path }, new AbortController().signal);
    left.close("the client leaves");
  }
  assert.equal(listener.port, null);
});

test("a Unix socket replaces that of a process that has ended, and no other file", async () => {
  using scratch = scratchDirectory();
  const [dead, file, live] = ["dead", "file", "live"].map((name) => join(scratch.path, name)) as [
    string,
    string,
    string,
  ];
  const leaves = `require("net").createServer().listen(${JSON.stringify(dead)}, () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["-e", leaves]);
  const listen = (path: string) => listenAddress({ path }, (accepted) => accepted.close(null));
  const replaced = await listen(dead);
  writeFileSync(file, "mine");
  await assert.rejects(listen(file), { code: "EADDRINUSE" });
  await assert.rejects(listen(join(scratch.path, "none", "socket")), { code: "ENOENT", message: /none'$/ });
  const first = await listen(live);
  await assert.rejects(listen(live), { code: "EADDRINUSE" });
  for (const listener of [replaced, first]) listener.close();
});
