import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { describe, it } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import { WalledPeers } from "../../src/sandbox/sandboxed-peers.ts";

/** A listener of this program, and clients that are programs of their own. */
class Door implements AsyncDisposable {
  readonly #server: Server;
  readonly #clients: ChildProcess[] = [];
  readonly #sockets: Socket[] = [];

  constructor(server: Server) {
    this.#server = server;
  }

  static async open(host: string): Promise<Door> {
    const server = createServer().listen(0, host);
    await once(server, "listening");
    return new Door(server);
  }

  get ownPort(): number {
    const address = this.#server.address();
    assert.ok(address && typeof address === "object");
    return address.port;
  }

  /** Connects as `node -e`, with a shell around it where the one who connects is to be a descendant. */
  async knock(script: string, host: string) {
    const code = `const socket = require("node:net").connect(${this.ownPort}, "${host}"); socket.on("error", () => {}); ${script}`;
    const child = spawn("/bin/sh", ["-c", '"$0" -e "$1"; exit 0', process.execPath, code], {
      stdio: "ignore",
    });
    this.#clients.push(child);
    const [socket]: Socket[] = await once(this.#server, "connection");
    assert.ok(socket && child.pid !== undefined);
    socket.on("error", () => undefined);
    this.#sockets.push(socket);
    const { remoteAddress, remotePort } = socket;
    return {
      pid: child.pid,
      child,
      socket,
      peer: { peerName: `${remoteAddress}:${remotePort}`, ownPort: this.ownPort },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    const ends = this.#clients.map((child) => (child.exitCode === null ? once(child, "exit") : null));
    await Promise.all(ends);
    this.#server.close();
  }
}

/** Ends when the connection does. */
const STAYS = "socket.resume();";

for (const [family, listen, connect] of [
  ["IPv4", "127.0.0.1", "127.0.0.1"],
  ["IPv6", "::1", "::1"],
  ["IPv4 to a socket for both", "::", "127.0.0.1"],
] as const) {
  describe(`a peer that connects by ${family}`, () => {
    it("is inside when it descends from a walled process, and outside when it does not", async () => {
      await using door = await Door.open(listen);
      const peers = new WalledPeers();
      const inside = await door.knock(STAYS, connect);
      const outside = await door.knock(STAYS, connect);
      peers.add(inside.pid);
      assert.equal(await peers.isInside(inside.peer), true);
      assert.equal(await peers.isInside(outside.peer), false);
    });

    for (const [how, script] of [
      ["closed", 'socket.write("bytes", () => process.exit());'],
      ["reset", 'socket.write("bytes", () => socket.resetAndDestroy());'],
    ] as const) {
      it(`counts as inside when it has sent something and ${how} the connection`, async () => {
        await using door = await Door.open(listen);
        const peers = new WalledPeers();
        peers.add(1_000_000_000);
        const gone = await door.knock(script, connect);
        if (gone.child.exitCode === null) await once(gone.child, "exit");
        assert.equal(await peers.isInside(gone.peer), true);
      });
    }
  });
}

describe("the check of a new connection", () => {
  it("costs nothing while nobody walled has the network, and for a while after one had it", async () => {
    await using door = await Door.open("127.0.0.1");
    const clock = new ManualClock();
    const peers = new WalledPeers(clock);
    const { peer, pid } = await door.knock(STAYS, "127.0.0.1");
    assert.equal(peers.isInside(peer), false);
    const ended = peers.add(pid);
    assert.equal(await peers.isInside(peer), true);
    ended();
    assert.equal(await peers.isInside(peer), true, "what it sent before its end may still be read");
    await clock.advance(60_000);
    assert.equal(peers.isInside(peer), false);
  });

  it("is not asked about another machine, or a unix socket", () => {
    const peers = new WalledPeers();
    peers.add(process.pid);
    for (const peerName of ["192.0.2.7:4000", "2001:db8::1:4000"])
      assert.equal(peers.isInside({ peerName, ownPort: 1 }), false);
    assert.equal(peers.isInside({ peerName: "unix", ownPort: 0 }), false);
  });

  it("counts a TCP peer whose address is not known any more as inside", async () => {
    const peers = new WalledPeers();
    peers.add(process.pid);
    for (const peerName of ["unix", "undefined:undefined", ""])
      assert.equal(await peers.isInside({ peerName, ownPort: 1 }), true);
  });
});
