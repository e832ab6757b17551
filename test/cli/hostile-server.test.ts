import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { promisify } from "node:util";
import { WebSocketServer } from "ws";
import { PROCWIRE } from "../support/servers/serve.ts";

/** Characters that a terminal would interpret or reorder. */
const EVIL = "\x1b[2J\u202e\x9b1A\x7f\n";
const UNSEEN = /[\x1b\u202e\x9b\x7f]/;

/** Starts a server that returns such characters in every text field of a list. */
const LISTING = {
  processId: EVIL,
  handle: `h${EVIL}`,
  principal: `who${EVIL}`,
  signal: `SIG${EVIL}`,
  argv: [EVIL],
  cwd: EVIL,
  pid: 1,
  running: false,
  exitCode: 1,
  tty: false,
  outputBytes: 0,
  startedAtMs: 0,
};

/** Runs the CLI with the URL of a server that lists these processes. Returns stdout. */
async function runWith(processes: readonly object[], args: (url: string) => string[]): Promise<string> {
  return runWithResults({ "process/list": { processes } }, args);
}

/** Runs the CLI with the URL of a server that returns these results. Returns stdout. */
async function runWithResults(
  results: Readonly<Record<string, object>>,
  args: (url: string) => string[],
): Promise<string> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    socket.on("message", (data) => {
      const { id, method } = JSON.parse(String(data)) as { id?: number; method?: string };
      if (id === undefined) return;
      const initialized = { sessionId: "s", extensions: ["attach"] };
      const result = method === "initialize" ? initialized : (results[method ?? ""] ?? {});
      socket.send(JSON.stringify({ id, result }));
    });
  });
  try {
    await once(server, "listening");
    const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const env = { ...process.env, PROCWIRE_COMPLETION_TIMEOUT_MS: "60000" };
    return (await promisify(execFile)(PROCWIRE, args(url), { env })).stdout;
  } finally {
    for (const client of server.clients) client.terminate();
    server.close();
  }
}

test("`procwire ps` prints no control character that a hostile server sends", async () => {
  const stdout = await runWith([LISTING], (url) => ["ps", "--all", "--connect", url]);
  for (const word of ["h", "who", "SIG"]) assert.ok(stdout.includes(`${word}\\x1b[2J`), stdout);
  assert.doesNotMatch(stdout, UNSEEN);
  assert.equal(stdout.split("\n").length, 3);
});

test("`procwire ps --tree` ends although a hostile server sends a process as its own parent", async () => {
  const entry = { state: "running", cpuMs: 0, rssBytes: 0, argv: ["sleep"], startedAtMs: 0 };
  const processes = [
    { ...entry, pid: 2, parentPid: 1 },
    { ...entry, pid: 2, parentPid: 2 },
    { ...entry, pid: 3, parentPid: 1 },
  ];
  const results = {
    "process/list": { processes: [{ ...LISTING, running: true }] },
    "process/tree": { processes, omitted: 0 },
  };
  const stdout = await runWithResults(results, (url) => ["ps", "--tree", "--connect", url]);
  assert.equal(stdout.split("\n").filter((line) => line.includes("sleep")).length, 1, stdout);
});

test("`procwire access list` prints no control character that a hostile server sends", async () => {
  const access = { accessId: `a${EVIL}`, kind: "connection", principal: EVIL, peer: EVIL, device: EVIL };
  const entry = { ...access, sinceMs: 0, lastUsedAtMs: 0, tokenId: EVIL, isCurrent: true };
  const stdout = await runWithResults({ "access/list": { accesses: [entry] } }, (url) => [
    ...["access", "list", "--connect", url],
  ]);
  assert.ok(stdout.includes("a\\x1b[2J"), stdout);
  assert.doesNotMatch(stdout, UNSEEN);
  assert.equal(stdout.split("\n").length, 3);
});

test("`procwire share` and `console` print no control character that a hostile server sends", async () => {
  const results = {
    "process/list": { processes: [{ ...LISTING, running: true, name: "api" }] },
    "process/share": { token: EVIL, expiresAtMs: 0 },
    "console/login": { fragment: `#token=${EVIL}`, validMs: 0 },
  };
  for (const words of [["share", "api"], ["console"]]) {
    const stdout = await runWithResults(results, (url) => [...words, "--connect", url]);
    assert.match(stdout, /^http:\/\/127\.0\.0\.1:\d+\/#[^\n]*\n$/);
    assert.doesNotMatch(stdout, UNSEEN);
  }
});

test("`procwire run --detach` prints no control character that a hostile server sends", async () => {
  const results = {
    "process/start": { processId: "p", handle: EVIL },
    "environment/info": { shell: { name: "sh", path: "/bin/sh" }, cwd: "file:///" },
  };
  const stdout = await runWithResults(results, (url) => ["run", "--connect", url, "--detach", "--", "true"]);
  assert.match(stdout, /^\\x1b[^\n]*\n$/);
  assert.doesNotMatch(stdout, UNSEEN);
});

test("completion offers no handle or name that a shell would expand, and no control character", async () => {
  const hostile = ["$(touch made)", "`touch made`", "a b", "*", "-s", "a\nb", "a\tb"].map((handle) => ({
    ...LISTING,
    ...{ handle, name: handle },
  }));
  const processes = [...hostile, { ...LISTING, handle: "k3v7q2mfa5zt" }];
  const stdout = await runWith(processes, (url) => ["help", "--candidates", "logs", "--connect", url]);
  assert.match(stdout, /^k3v7q2mfa5zt\t[^\n]*\n$/);
  assert.doesNotMatch(stdout, UNSEEN);
});
