/** Rendered screens, and notices about the driver, over the wire. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { EventLogLimits } from "../../../src/exec/log/event-log.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { memoryWire, WireClient } from "../../support/servers/raw-connection.ts";

function setup(limits: Partial<EventLogLimits> = {}) {
  const host = new FakeHost(limits);
  const server = new ExecServer(host, {});
  const ready = async (params: Record<string, unknown> = {}) => {
    const client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake({ extensions: ["attach"], ...params });
    return client;
  };
  const start = async (owner: WireClient, more: Record<string, unknown> = { tty: true }) =>
    String((await owner.start("p", ["x"], more)).handle);
  const print = (text: string) => host.process("p").log.append("pty", Buffer.from(text));
  return { host, server, ready, start, print };
}

const attach = (client: WireClient, handle: string, role: string, more: object = {}) =>
  client.call("process/attach", { handle, role, ...more });

interface Screen {
  seq: number;
  size: { rows: number; cols: number };
  cursor: { row: number; col: number };
  alternate: boolean;
  title: string;
  data: string;
  incomplete: string;
}

const decode = (base64: string) => Buffer.from(base64, "base64").toString();
const textOf = ({ data }: Screen) =>
  decode(data).replace(/\x1b\][^\x1b]*\x1b\\|\x1b\[[^@-~]*[@-~]|\x1b[ -/]*.|\p{Cc}/gu, "");

describe("process/attach with a screen", () => {
  test("returns the rendered screen, then sends only later events", async () => {
    const { host, ready, start, print } = setup();
    const handle = await start(await ready());
    print("old line\r\n".repeat(30));
    print("\x1b]2;editor\x07\x1b[?1049h\x1b[2;3Hhello\x1b[3");
    const viewer = await ready();
    const { screen, nextSeq } = await attach(viewer, handle, "viewer", { screen: true });
    const { data: _, ...rest } = screen as Screen;
    assert.deepEqual(rest, {
      seq: 2,
      size: { rows: 24, cols: 80 },
      cursor: { row: 1, col: 7 },
      alternate: true,
      title: "editor",
      incomplete: Buffer.from("\x1b[3").toString("base64"),
    });
    assert.equal(nextSeq, 3);
    print("1mred");
    await host.clock.advance(5);
    await viewer.outputContains(handle, "1mred");
    assert.equal(viewer.output(handle), "1mred");
    const { chunks } = (await viewer.call("process/read", { processId: handle })) as { chunks: unknown[] };
    assert.equal(chunks.length, 3, "earlier output can be read for scrollback");
  });

  test("resizes the terminal to the driver's size before it renders", async () => {
    const { ready, start, print } = setup();
    const handle = await start(await ready());
    print("first\r\nsecond");
    const result = await attach(await ready(), handle, "driver", { screen: true, size: { rows: 5, cols: 20 } });
    const screen = result.screen as Screen;
    assert.deepEqual(screen.size, { rows: 5, cols: 20 });
    assert.equal(textOf(screen), "firstsecondd", "the last character is printed twice");
  });

  test("returns no screen without a terminal and for a huge terminal, and sends the retained output", async () => {
    const { host, ready, start } = setup();
    for (const more of [{}, { tty: true, size: { rows: 65_535, cols: 65_535 } }]) {
      const owner = await ready();
      const handle = await start(owner, more);
      host.process("p").print("all");
      const viewer = await ready();
      assert.equal("screen" in (await attach(viewer, handle, "viewer", { screen: true })), false);
      await host.clock.advance(5);
      await viewer.outputContains(handle, "all");
      const { message } = await viewer.refused("process/screen", { processId: handle });
      assert.match(message, more.size ? /is too large to render: 65535x65535$/ : /has no terminal$/);
    }
  });
});

describe("process/attach whose screen cannot be rendered", () => {
  test("attaches without a screen, and sends the retained output", async (t) => {
    const { host, ready, start, print } = setup();
    const handle = await start(await ready());
    print("all");
    const fail = () => {
      throw new Error("no descriptor is free");
    };
    t.mock.method(host.process("p").log, "evictedModes", fail, { times: 1 });
    const viewer = await ready();
    assert.equal("screen" in (await attach(viewer, handle, "viewer", { screen: true })), false);
    await host.clock.advance(5);
    await viewer.outputContains(handle, "all");
  });
});

describe("process/screen", () => {
  test("keeps the modes, the scroll region and the title of evicted output", async () => {
    const { ready, start, print } = setup({ retainedBytes: 4096 });
    const owner = await ready();
    await start(owner);
    print("\x1b[?1049h\x1b[?25l\x1b[2;5r\x1b]0;status\x07\x1b[?10");
    print("00;1006h");
    for (let count = 0; count < 40; count++) print("\x1b[H\x1b[31mframe\x1b[0m".padEnd(400, " "));
    const screen = (await owner.call("process/screen", { processId: "p" })) as unknown as Screen;
    assert.equal(screen.alternate, true);
    assert.equal(screen.title, "status");
    for (const sequence of ["\x1b[?25l", "\x1b[2;5r", "\x1b[?1000h", "\x1b[?1006h"])
      assert.ok(decode(screen.data).includes(sequence), JSON.stringify(sequence));
    assert.match(textOf(screen), /^\s*frame/);
  });

  test("draws only new output on the next call, and frees its memory", async () => {
    const { host, server, ready, start, print } = setup();
    const owner = await ready();
    await start(owner);
    const before = server.resources.memory.bytes;
    for (const word of ["one", "two", "three"]) {
      print(`${word} `);
      const screen = (await owner.call("process/screen", { processId: "p" })) as unknown as Screen;
      assert.equal(textOf(screen).includes(word), true);
    }
    assert.ok(server.resources.memory.bytes > before, "the renderer is charged to the memory budget");
    host.process("p").finish();
    await owner.finished("p");
    assert.equal(server.resources.memory.bytes, before);
  });
});

describe("the driver of a process", () => {
  /** A driver, a viewer and a process that belongs to the server. */
  async function driven() {
    const { host, ready, start } = setup();
    const owner = await ready();
    const handle = await start(owner, { tty: true, lifetime: "server" });
    const viewer = await ready();
    const drivers = () =>
      viewer.messages.filter(({ method }) => method === "process/driverChanged").map(({ params }) => params?.driver);
    const initial = (await attach(viewer, handle, "viewer")).driver;
    const driver = await ready();
    await attach(driver, handle, "driver");
    await owner.call("process/detach", { processId: "p" });
    const told = (expected: string[]) =>
      viewer.until(`driver ${expected.join()}`, () => drivers().join() === expected.join());
    return { host, ready, handle, viewer, driver, initial, drivers, told };
  }

  test("is the connected owner for a viewer; viewers are notified when the driver detaches", async () => {
    const { viewer, driver, handle, initial, told } = await driven();
    assert.equal(initial, "attached");
    await driver.call("process/detach", { processId: handle });
    await told(["none"]);
    assert.equal((await attach(viewer, handle, "driver")).role, "driver");
  });

  test("leaves for the viewers when its connection is lost, and returns when its session is resumed", async () => {
    const { host, ready, driver, told } = await driven();
    await driver.close();
    await told(["none"]);
    const again = await ready({ resumeSessionId: driver.sessionId });
    await told(["none", "attached"]);
    await again.close();
    await host.clock.advance(30_000);
    await told(["none", "attached", "none"]);
  });

  test("is replaced without a notice that it left; the former driver becomes a viewer and is notified later", async () => {
    const { ready, handle, viewer, driver, drivers } = await driven();
    const next = await ready();
    await attach(next, handle, "driver");
    assert.equal((await driver.notification("process/roleChanged", handle)).params?.role, "viewer");
    await viewer.roundTrip();
    assert.deepEqual(drivers(), []);
    await next.close();
    assert.equal((await driver.notification("process/driverChanged", handle)).params?.driver, "none");
  });

  test("leaves for the viewers when the owner disconnects or hands the process to the server", async () => {
    const { host, ready, start } = setup();
    for (const leave of ["close", "detach"]) {
      const owner = await ready();
      const handle = await start(owner, { tty: true, lifetime: "server" });
      const viewer = await ready();
      assert.equal((await attach(viewer, handle, "viewer")).driver, "attached");
      if (leave === "close") await owner.close();
      else await owner.call("process/detach", { processId: "p" });
      assert.equal((await viewer.notification("process/driverChanged", handle)).params?.driver, "none", leave);
      host.process("p").finish();
    }
  });
});
