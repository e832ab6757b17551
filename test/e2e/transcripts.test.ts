import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { WireClient, WireMessage } from "../support/servers/raw-connection.ts";
import { type ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";

/**
 * Requests that were once sent to the reference server, and its answers: procwire must answer the same requests the
 * same way. Where procwire differs on purpose, the fixture holds procwire's answer. `<any>` matches a value that
 * differs each time; `$DIR` is a directory made for the test.
 */

type Expected = { result: unknown } | { error: [code: number, message: string] };
type Step =
  | ["handshake"]
  | ["call", method: string, params: unknown, expected: Expected]
  /** A text whose response has this id; a trailing `n` denotes an id beyond the safe integers of JavaScript. */
  | ["text", text: string, id: string | number, expected: Expected]
  /** A text that cannot be read. */
  | ["raw", text: string]
  | ["notify", method: string, params: unknown]
  | ["await", processId: string, what: { bytes: number; exited?: boolean; closed?: boolean }]
  | ["process", processId: string, what: { stdout?: string; stderr?: string; pty?: string; exitCode?: number }]
  | ["ends"];

const FIXTURES = new URL("../fixtures/transcripts/", import.meta.url);
const MALFORMED = /^failed to parse websocket JSON-RPC message from exec-server websocket 127\.0\.0\.1:\d+: ./;

let server: ServeChild;
before(async () => {
  server = await serve();
});
after(() => server.stop());

describe("the reference server's transcripts", { concurrency: 6 }, () => {
  for (const name of readdirSync(FIXTURES).sort()) {
    test(name.replace(/\.json$/, ""), async () => {
      using scratch = scratchDirectory();
      prepareFiles(scratch.path, name);
      const text = readFileSync(new URL(name, FIXTURES), "utf8").replaceAll("$DIR", scratch.path);
      const steps: Step[] = JSON.parse(text);
      const client = await server.connect();
      for (const step of steps) await replay(client, step);
      if (!client.isEnded) await client.close();
    });
  }
});

async function replay(client: WireClient, step: Step): Promise<void> {
  switch (step[0]) {
    case "handshake":
      await client.handshake();
      return;
    case "call":
      check(step[1], step[2], await client.request(step[1], step[2] ?? undefined), step[3]);
      return;
    case "text": {
      const [, text, id, expected] = step;
      const before = client.messages.length;
      client.raw(text);
      const wanted = typeof id === "string" && /^\d+n$/.test(id) ? BigInt(id.slice(0, -1)) : id;
      await client.until(`an answer to ${text}`, () =>
        client.messages.slice(before).some((message) => message.id === wanted),
      );
      const answer = client.messages.slice(before).find((message) => message.id === wanted);
      check(text, null, answer ?? {}, expected);
      return;
    }
    case "raw": {
      const before = client.messages.length;
      client.raw(step[1]);
      if (isFatal(step[1])) return;
      await client.until(`an answer to ${step[1]}`, () => client.messages.length > before);
      const { id, error } = client.messages[before] ?? {};
      assert.equal(id, -1, step[1]);
      assert.equal(error?.code, -32600);
      assert.match(error?.message ?? "", MALFORMED);
      return;
    }
    case "notify":
      client.notify(step[1], step[2] ?? undefined);
      return;
    case "await": {
      const [, processId, { bytes, exited, closed }] = step;
      await client.until(`${processId} to come this far`, () => {
        const methods = client.notificationsOf(processId).map(({ method }) => method);
        return (
          client.outputBytes(processId).length >= bytes &&
          (!exited || methods.includes("process/exited")) &&
          (!closed || methods.includes("process/closed"))
        );
      });
      return;
    }
    case "process": {
      const [, processId, { exitCode, ...streams }] = step;
      const notifications = client.notificationsOf(processId);
      for (const [stream, expected] of Object.entries(streams)) {
        const chunks = notifications
          .filter(({ params }) => params.stream === stream)
          .map(({ params }) => String(params.chunk));
        const text = Buffer.concat(chunks.map((chunk) => Buffer.from(chunk, "base64"))).toString("latin1");
        assert.equal(text, Buffer.from(expected, "base64").toString("latin1"), `${stream} of ${processId}`);
      }
      if (exitCode !== undefined) {
        const exited = notifications.find(({ method }) => method === "process/exited");
        assert.equal(exited?.params.exitCode, exitCode, `exit code of ${processId}`);
      }
      const seqs = notifications.map(({ params }) => params.seq);
      assert.deepEqual(
        seqs,
        seqs.map((_, index) => index + 1),
        `sequence of ${processId}`,
      );
      return;
    }
    case "ends":
      await client.ended();
      return;
  }
}

/** Reports whether a text is valid JSON but no request; the server closes the connection without a response. */
function isFatal(text: string): boolean {
  return /^\{"id": ?99,/.test(text);
}

function check(method: string, params: unknown, answer: WireMessage, expected: Expected): void {
  const what = `${method} ${JSON.stringify(params)}`;
  if ("error" in expected) {
    const [code, message] = expected.error;
    assert.ok(answer.error, `${what} was answered ${JSON.stringify(answer.result)}`);
    assert.equal(answer.error.code, code, `${what}: ${answer.error.message}`);
    if (message !== "<any>") assert.equal(answer.error.message, message, what);
    return;
  }
  assert.ok(answer.result, `${what} was refused: ${JSON.stringify(answer.error)}`);
  assert.deepEqual(masked(answer.result, expected.result), ordered(expected.result), what);
}

/** Returns the response with `<any>` for masked values and without members that the expectation lacks. */
function masked(actual: unknown, expected: unknown): unknown {
  if (expected === "<any>") return "<any>";
  if (Array.isArray(expected) && Array.isArray(actual)) {
    const [sortedActual, sortedExpected] = [ordered(actual), ordered(expected)];
    if (Array.isArray(sortedActual) && Array.isArray(sortedExpected))
      return sortedActual.map((one, index) => masked(one, sortedExpected[index]));
  }
  if (isRecord(actual) && isRecord(expected)) {
    return Object.fromEntries(
      Object.entries(actual)
        .filter(([key]) => key in expected)
        .map(([key, value]) => [key, masked(value, expected[key])]),
    );
  }
  return actual;
}

/** Returns the value with sorted directory entries, because their order is undefined. */
function ordered(value: unknown): unknown {
  if (Array.isArray(value)) {
    const isEntries = value.every((one) => isRecord(one) && "fileName" in one);
    const items = value.map(ordered);
    return isEntries ? items.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)) : items;
  }
  if (isRecord(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, ordered(one)]));
  return value;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Creates the files with which the transcripts of `fs/*` were recorded. */
function prepareFiles(directory: string, transcript: string): void {
  const at = (name: string) => join(directory, name);
  writeFileSync(at("a.txt"), "hello");
  writeFileSync(at(".hidden"), "");
  writeFileSync(at("w.txt"), "");
  mkdirSync(at("sub/deep"), { recursive: true });
  writeFileSync(at("sub/b.bin"), Uint8Array.of(0xff, 0, 1));
  symlinkSync("a.txt", at("link"));
  symlinkSync("sub", at("dlink"));
  symlinkSync("nowhere", at("broken"));
  if (transcript.startsWith("39")) writeFileSync(at("stream"), "a".repeat(3_000_000));
  if (transcript.startsWith("37")) {
    writeFileSync(at("huge"), "");
    truncateSync(at("huge"), 600 * 1024 * 1024);
  }
}
