import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { FileSystem } from "../../src/files/file-system.ts";
import { notFound } from "../../src/protocol/errors.ts";
import { methods } from "../../src/protocol/methods.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { memoryWire, WireClient } from "../support/servers/raw-connection.ts";

/** A file system without files: random params must not change any file. */
const refuse = async () => {
  throw notFound("No such file or directory (os error 2)");
};
const noFiles: FileSystem = {
  openFile: refuse,
  writeFile: refuse,
  createDirectory: refuse,
  getMetadata: refuse,
  canonicalize: refuse,
  readDirectory: refuse,
  walk: refuse,
  remove: refuse,
  copy: refuse,
  scan: refuse,
  writeAtomic: refuse,
  setAttributes: refuse,
  openHandles: () => ({
    open: refuse,
    readBlock: refuse,
    writeBlock: refuse,
    openPartial: refuse,
    checksum: refuse,
    commit: refuse,
    closeHandle: async () => undefined,
    close: async () => undefined,
  }),
  openWatches: () => ({ watchMissing: async () => ({ watching: false }), close: () => undefined }),
};

/** Values of every type, including values that are valid for some field. */
const scalar = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    1,
    -1,
    1.5,
    2 ** 53,
    "",
    "p",
    "x",
    "file:///tmp",
    "interrupt",
    "aGk=",
    "exit",
  ),
  fc.string({ maxLength: 5 }),
  fc.integer(),
);
const FIELDS = [...new Set(Object.values(methods).flatMap(({ params }) => Object.keys(params.fields?.() ?? {})))];
const json = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    scalar,
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...FIELDS, "type", "rows", "cols"), tie("value"), { maxKeys: 6 }),
  ),
})).value;

/** Params with one invalid field. */
const nearly = fc.constantFrom<[string, Record<string, unknown>]>(
  ["process/start", { processId: "p", argv: ["x"], cwd: "file:///tmp", env: {}, tty: false }],
  ["process/read", { processId: "p", afterSeq: 0, maxBytes: 1 }],
  ["process/write", { processId: "p", chunk: "aGk=", writeId: "w" }],
  ["process/signal", { processId: "p", signal: "interrupt" }],
  ["process/terminate", { processId: "p", mode: { type: "graceful", timeoutMs: 1 } }],
  ["process/wait", { processId: "p", until: { type: "bytes", count: 0 }, timeoutMs: 0 }],
  ["process/resize", { processId: "p", size: { rows: 1, cols: 1 } }],
  ["process/closeStdin", { processId: "p" }],
  ["process/snapshot", { processId: "p" }],
  ["command/exec", { argv: ["x"], cwd: "/", env: {}, tty: true }],
  ["command/exec/write", { sessionId: "session-1", chunk: "" }],
  ["fs/walk", { path: "file:///", options: {} }],
  ["http/request", { method: "GET", url: "http://127.0.0.1:1/", requestId: "r" }],
);

const request = fc.oneof(
  fc.tuple(fc.constantFrom(...Object.keys(methods), "nonsense", "__proto__"), json),
  fc
    .tuple(nearly, fc.constantFrom(...FIELDS), json)
    .map(([[method, params], field, value]): [string, unknown] => [method, { ...params, [field]: value }]),
);

describe("a random request", () => {
  test("gets a response with its id and a known code, and causes no internal error", async () => {
    const host = Object.assign(new FakeHost(), { files: async () => noFiles });
    const server = new ExecServer(host);
    const client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake();
    const known = new Set([-32600, -32602, -32603, -32004, -32010]);
    await fc.assert(
      fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 6 }), async (requests) => {
        // No request may wait, so timeouts are 0.
        const responses = requests.map(([method, params]) =>
          client.request(method, isRecord(params) ? { ...params, ...patience(method, params) } : params),
        );
        for (const { result, error } of await Promise.all(responses)) {
          if (error) assert.ok(known.has(error.code), JSON.stringify(error));
          else assert.ok(isRecord(result), JSON.stringify(result));
        }
      }),
      { numRuns: 1500 },
    );
    assert.deepEqual(host.logged, []);
    await client.close();
    await server.close();
  });

  test("as random text gets a response or closes its connection, and the server keeps serving", async () => {
    const server = new ExecServer(Object.assign(new FakeHost(), { files: async () => noFiles }));
    const line = fc.oneof(
      fc.string(),
      json.map((value) => JSON.stringify(value)),
      fc
        .tuple(json, fc.constantFrom("initialize", "initialized", "process/ack", "process/list"), json)
        .map(([id, method, params]) => JSON.stringify({ id, method, params })),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(line, { maxLength: 5 }), async (lines) => {
        const client = new WireClient(memoryWire((connection) => server.accept(connection)));
        for (const text of lines) client.raw(text);
        client.raw('{"id":"last","method":"environment/status"}');
        while (!client.isEnded && !client.messages.some(({ id }) => id === "last")) {
          await new Promise((resolve) => setImmediate(resolve));
        }
        await client.close();
      }),
      { numRuns: 500 },
    );
    await server.close();
  });
});

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function patience(method: string, params: Record<string, unknown>): Record<string, unknown> {
  if (method === "process/read" && typeof params.waitMs === "number") return { waitMs: 0 };
  if (method === "process/wait") return { timeoutMs: 0 };
  return {};
}
