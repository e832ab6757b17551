import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { isPortListening, listeningPortsOf, ownListeningPorts, PortTable } from "../../src/local/listening-ports.ts";
import { until } from "../support/system/until.ts";

const line = (port: number, inode: number) =>
  `  0: 0100007F:${port.toString(16).toUpperCase().padStart(4, "0")} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0 0 10 0`;

test("PortTable shares one read among all waits", () => {
  let nowMs = 0;
  let reads = 0;
  const lines = [line(80, 1)];
  const table = new PortTable({
    nowMs: () => nowMs,
    read: () => {
      reads++;
      return [lines.join("\n")];
    },
  });
  // 200 waits each poll every 50 ms, at different offsets, for one second.
  for (nowMs = 0; nowMs < 1000; nowMs++)
    for (let wait = 0; wait < 200; wait++)
      if ((nowMs + wait) % 50 === 0) assert.equal(table.isListening(1000 + wait), false);
  assert.ok(reads <= 50, `${reads} reads`);
  // A listener is reported at once only when it exists now.
  lines.push(line(1007, 2));
  nowMs += 20;
  assert.equal(table.isListening(1007), true);
  lines.pop();
  assert.equal(table.isListening(1007), false);
});

test("PortTable returns null if the system has no port table", () => {
  assert.equal(new PortTable({ nowMs: () => 0, read: () => null }).isListening(80), null);
});

test("listeningPortsOf finds the listening ports of a process tree", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  // A listening TCP server has an address of this form.
  const { port } = server.address() as AddressInfo;
  assert.equal(await isPortListening(port), true);
  const found = listeningPortsOf([process.pid]).find((address) => address.port === port);
  assert.deepEqual(found, { port, host: "127.0.0.1", leader: process.pid });
  assert.deepEqual(listeningPortsOf([]), []);
  server.close();
  await once(server, "close");
  assert.equal(await isPortListening(port), false);
});

test("ownListeningPorts finds own listeners in a table of several reads, but not those of other processes", async () => {
  const child = spawn(process.execPath, [
    "-e",
    `const server = require("node:net").createServer().listen(0, "127.0.0.1", () => console.log(server.address().port))`,
  ]);
  const [foreign] = await once(child.stdout, "data");
  // A row has 150 bytes, so that the table exceeds 64 KiB.
  const servers = Array.from({ length: 600 }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  try {
    const ports = servers.map((server) => (server.address() as AddressInfo).port);
    await until("all own listeners", () => ports.every((port) => ownListeningPorts().has(port)));
    assert.equal(await isPortListening(Number(foreign)), true);
    assert.equal(ownListeningPorts().has(Number(foreign)), false);
    const [closed, ...open] = servers;
    closed?.close();
    await until("the end of one", () => !ownListeningPorts().has(ports[0] ?? 0));
    assert.ok(open.every((_, index) => ownListeningPorts().has(ports[index + 1] ?? 0)));
  } finally {
    for (const server of servers) server.close();
    child.kill();
  }
});
