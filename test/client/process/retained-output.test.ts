import assert from "node:assert/strict";
import { test } from "node:test";
import { readRetainedOutput } from "../../../src/client/process/retained-output.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { connectScripted, ScriptedServer } from "../scripted-server.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const chunk = (seq: number, text: string) => ({ seq, stream: "pty", chunk: encodeBase64(bytes(text)) });
const REST = { exited: false, exitCode: null, closed: false, failure: null };

async function attachWith(pages: Record<number, object>) {
  const { client, server } = await connectScripted(
    {},
    new ScriptedServer({
      initialize: () => ({ sessionId: "S", extensions: ["attach"] }),
      "process/attach": ({ role }) => ({
        ...{ processId: "h", handle: "h", role, argv: ["top"], cwd: "file:///", tty: true },
        ...{ startedAtMs: 0, running: true, nextSeq: 6 },
      }),
      "process/read": ({ afterSeq }) => ({ ...REST, ...pages[Number(afterSeq)] }),
    }),
  );
  return { client, server, process: await client.attach("h") };
}

test("readRetainedOutput reads up to the attachment in pages, with times and the size of gaps", async () => {
  const { client, server, process } = await attachWith({
    0: { chunks: [chunk(2, "b"), chunk(3, "c")], times: [5, 6], ageMs: 50, nextSeq: 4, gap: gap(1, 1, 10) },
    3: { chunks: [chunk(5, "e")], times: [7], ageMs: 60, nextSeq: 6, gap: gap(4, 4, 20) },
  });
  const { chunks, ...rest } = await readRetainedOutput(process);
  assert.deepEqual(
    chunks.map((one) => [one.seq, new TextDecoder().decode(one.chunk), one.atMs]),
    [
      [2, "b", 5],
      [3, "c", 6],
      [5, "e", 7],
    ],
  );
  assert.deepEqual(rest, { ageMs: 60, throughSeq: 5, missedBytes: 30 });
  assert.deepEqual(
    server.calls("process/read").map(({ afterSeq, maxBytes, times }) => [afterSeq, maxBytes, times]),
    [
      [0, 256 * 1024, true],
      [3, 256 * 1024, true],
    ],
  );
  await client.close();
});

test("readRetainedOutput ends at an empty page or at the given sequence number", async () => {
  const { client, server, process } = await attachWith({
    0: { chunks: [chunk(1, "a"), chunk(2, "b")], nextSeq: 3, gap: gap(1, 1, null) },
    2: { chunks: [], nextSeq: 3, gap: gap(3, 3, 5) },
  });
  const { chunks, throughSeq, missedBytes } = await readRetainedOutput(process, 3);
  assert.deepEqual([chunks.map(({ atMs }) => atMs), throughSeq, missedBytes], [[0, 0], 2, null]);
  assert.equal(server.calls("process/read").length, 1);
  const whole = await readRetainedOutput(process);
  assert.deepEqual([whole.chunks.length, whole.throughSeq, whole.missedBytes], [2, 2, null]);
  assert.equal(server.calls("process/read").length, 3);
  await client.close();
});

function gap(fromSeq: number, toSeq: number, bytes: number | null): object {
  return { fromSeq, toSeq, bytes };
}
