import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import type { ExecServerClient } from "../../../src/client/exec-server-client.ts";
import { until } from "../system/until.ts";

export interface Cuts {
  bytes: number;
  cuts: number;
  /** Breaks the current connection; the caller chooses how. */
  cut(number: number): void | Promise<void>;
  /** How many connections were opened so far. */
  opened(): number;
}

/**
 * Writes random bytes to a remote program that echoes them, and cuts the connection while bytes are in transit. Every
 * byte must come back once and in order.
 */
export async function carryThroughCuts(client: ExecServerClient, cuts: Cuts): Promise<void> {
  const data = randomBytes(cuts.bytes);
  await using child = await client.start({
    processId: "cat",
    argv: ["cat"],
    cwd: "/",
    env: { PATH: process.env.PATH ?? "" },
    tty: false,
    pipeStdin: true,
  });
  const hash = createHash("sha256");
  let received = 0;
  const reading = (async () => {
    for await (const event of child.events({ lossless: true })) {
      assert.notEqual(event.type, "gap");
      if (event.type !== "output") continue;
      hash.update(event.chunk);
      received += event.chunk.length;
    }
  })();
  const part = 20_000;
  const share = data.length / (cuts.cuts + 2);
  let madeCuts = 0;
  let nextCut = Promise.withResolvers<void>();
  const typing = (async () => {
    for (let at = 0; at < data.length; at += part) {
      // A fast server would otherwise echo everything before the first cut.
      while (madeCuts < cuts.cuts && at > share * (madeCuts + 2)) await nextCut.promise;
      await child.write(data.subarray(at, at + part));
    }
    await child.closeStdin();
  })();
  for (let cut = 1; cut <= cuts.cuts; cut++) {
    await until(`output before cut ${cut}`, () => received > share * cut, reading);
    const before = cuts.opened();
    await cuts.cut(cut);
    madeCuts = cut;
    nextCut.resolve();
    nextCut = Promise.withResolvers();
    await until(`a new connection after cut ${cut}`, () => cuts.opened() > before, reading);
  }
  await Promise.all([reading, typing]);
  assert.equal(received, data.length);
  assert.equal(hash.digest("hex"), createHash("sha256").update(data).digest("hex"));
}
