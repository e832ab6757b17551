import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { describe, test } from "node:test";
import { SandboxedPeerDetector } from "../../src/sandbox/sandboxed-peers.ts";
import { ManualClock } from "../support/manual-clock.ts";

/** A listener of this process with clients in separate processes. */
class PeerListener implements AsyncDisposable {
  readonly #server: Server;
  readonly #clients: ChildProcess[] = [];
  readonly #sockets: Socket[] = [];

  constructor(server: Server) {
    this.#server = server;
  }

  static async open(host: string): Promise<PeerListener> {
    const server = createServer().listen(0, host);
    await once(server, "listening");
    return new PeerListener(server);
  }

  get localPort(): number {
    const address = this.#server.address();
    assert.ok(address && typeof address === "object");
    return address.port;
  }

  /** Starts a shell whose child process connects. */
  async connectClient(script: string, host: string) {
    const code = `const socket = require("node:net").connect(${this.localPort}, "${host}"); socket.on("error", () => {}); ${script}`;
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
      peer: { type: "tcp" as const, peerName: `${remoteAddress}:${remotePort}`, localPort: this.localPort },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    const ends = this.#clients.map((child) => (child.exitCode === null ? once(child, "exit") : null));
    await Promise.all(ends);
    this.#server.close();
  }
}

/** Exits when the connection closes. */
const STAY_CONNECTED = "socket.resume();";

for (const [family, listen, connect] of [
  ["IPv4", "127.0.0.1", "127.0.0.1"],
  ["IPv6", "::1", "::1"],
  ["IPv4 through a dual-stack socket", "::", "127.0.0.1"],
] as const) {
  describe(`SandboxedPeerDetector for a peer on ${family}`, () => {
    test("reports only descendants of a sandboxed process as sandboxed", async () => {
      await using listener = await PeerListener.open(listen);
      const peers = new SandboxedPeerDetector();
      const inside = await listener.connectClient(STAY_CONNECTED, connect);
      const outside = await listener.connectClient(STAY_CONNECTED, connect);
      peers.add(inside.pid);
      assert.equal(await peers.isSandboxed(inside.peer), true);
      assert.equal(await peers.isSandboxed(outside.peer), false);
    });

    for (const [how, script] of [
      ["closed", 'socket.write("bytes", () => process.exit());'],
      ["reset", 'socket.write("bytes", () => socket.resetAndDestroy());'],
    ] as const) {
      test(`reports a peer that sent bytes and ${how} the connection as sandboxed`, async () => {
        await using listener = await PeerListener.open(listen);
        const peers = new SandboxedPeerDetector();
        peers.add(1_000_000_000);
        const exited = await listener.connectClient(script, connect);
        if (exited.child.exitCode === null) await once(exited.child, "exit");
        assert.equal(await peers.isSandboxed(exited.peer), true);
      });
    }
  });
}

describe("SandboxedPeerDetector", () => {
  test("checks connections only while a sandboxed process has network access and shortly after", async () => {
    await using listener = await PeerListener.open("127.0.0.1");
    const clock = new ManualClock();
    const peers = new SandboxedPeerDetector(clock);
    const { peer, pid } = await listener.connectClient(STAY_CONNECTED, "127.0.0.1");
    assert.equal(peers.isSandboxed(peer), false);
    const ended = peers.add(pid);
    assert.equal(await peers.isSandboxed(peer), true);
    ended();
    assert.equal(await peers.isSandboxed(peer), true, "its last bytes may still be unread");
    await clock.advance(60_000);
    assert.equal(peers.isSandboxed(peer), false);
  });

  test("finds a peer whose address names its interface", async () => {
    await using listener = await PeerListener.open("::1");
    const peers = new SandboxedPeerDetector();
    const { pid, peer } = await listener.connectClient(STAY_CONNECTED, "::1");
    peers.add(pid);
    // The form of link-local addresses in Node.
    const peerName = peer.peerName.replace(/^::1:/, "::1%lo:");
    assert.equal(await peers.isSandboxed({ ...peer, peerName }), true);
  });

  test("skips peers of other hosts and Unix sockets", () => {
    const peers = new SandboxedPeerDetector();
    peers.add(process.pid);
    for (const peerName of ["192.0.2.7:4000", "2001:db8::1:4000"])
      assert.equal(peers.isSandboxed({ type: "tcp", peerName, localPort: 1 }), false);
    assert.equal(peers.isSandboxed({ type: "hiddenSocket" }), false);
  });

  test("reports a TCP peer with an unknown address as sandboxed", async () => {
    const peers = new SandboxedPeerDetector();
    peers.add(process.pid);
    for (const peerName of ["unix", "undefined:undefined", ""])
      assert.equal(await peers.isSandboxed({ type: "tcp", peerName, localPort: 1 }), true);
    assert.equal(await peers.isSandboxed({ type: "unknown" }), true);
  });
});
