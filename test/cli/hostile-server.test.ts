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

test("`procwire ps` prints no control character that a hostile server sends", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    socket.on("message", (data) => {
      const { id, method } = JSON.parse(String(data)) as { id?: number; method?: string };
      if (id === undefined) return;
      const extensions: string[] = [];
      const result = method === "initialize" ? { sessionId: "s", extensions } : { processes: [LISTING] };
      socket.send(JSON.stringify({ id, result }));
    });
  });
  try {
    await once(server, "listening");
    const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { stdout } = await promisify(execFile)(PROCWIRE, ["ps", "--all", "--connect", url]);
    for (const word of ["h", "who", "SIG"]) assert.ok(stdout.includes(`${word}\\x1b[2J`), stdout);
    assert.doesNotMatch(stdout, UNSEEN);
    assert.equal(stdout.split("\n").length, 3);
  } finally {
    for (const client of server.clients) client.terminate();
    server.close();
  }
});
