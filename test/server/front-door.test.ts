import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import type { AcceptedSocket, AcceptedSocketEvents } from "../../src/connection/accepted-socket.ts";
import { plainByteCodec } from "../../src/connection/byte-codec.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FrontDoor } from "../../src/server/front-door.ts";
import { FakeHost } from "../support/fake-host.ts";

/** A connection that remembers what was done to it. */
class Visitor implements AcceptedSocket {
  readonly peerName = "visitor";
  readonly done: string[] = [];
  readonly #closed = Promise.withResolvers<void>();
  readonly closed = this.#closed.promise;
  events: AcceptedSocketEvents | null = null;

  start(events: AcceptedSocketEvents): void {
    this.events = events;
  }

  send(bytes: Buffer): void {
    this.done.push(bytes.toString().split("\r\n")[0] ?? "");
  }

  end(): void {
    this.done.push("end");
  }

  destroy(): void {
    this.done.push("destroy");
    this.#closed.resolve();
  }

  upgrade(): never {
    throw new Error("it was let in");
  }
}

describe("the front door", () => {
  function visit() {
    const clock = new ManualClock();
    const door = new FrontDoor(new ExecServer(new FakeHost()), { type: "none" }, plainByteCodec, clock);
    const visitor = new Visitor();
    door.take(visitor);
    return { clock, door, visitor };
  }

  test("gives up on a request that is not whole within ten seconds, and then listens no more", async () => {
    const { clock, visitor } = visit();
    visitor.events?.bytes(Buffer.from("GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"));
    await clock.advance(9_999);
    assert.deepEqual(visitor.done, []);
    await clock.advance(1);
    assert.deepEqual(visitor.done, ["HTTP/1.1 408 Request Timeout", "end"]);
    visitor.events?.bytes(Buffer.from("sec-websocket-version: 13\r\nsec-websocket-key: x\r\n\r\n"));
    assert.equal(visitor.done.length, 2);
    await clock.advance(1_000);
    assert.deepEqual(visitor.done.slice(2), ["destroy"]);
  });

  test("drops one that leaves before it has said what it wants, and whoever is left when it is told to", async () => {
    const left = visit();
    left.visitor.events?.bytes(Buffer.from("GET"));
    left.visitor.events?.end();
    assert.deepEqual(left.visitor.done, ["destroy"]);
    await left.clock.advance(60_000);
    assert.deepEqual(left.visitor.done, ["destroy"]);

    const silent = visit();
    let isOpen = true;
    const listening = silent.door.behind({ port: 0, close: () => (isOpen = false) }, "ws://x");
    const closed = listening.close();
    assert.equal(isOpen, false);
    listening.drop();
    await closed;
    assert.deepEqual(silent.visitor.done, ["destroy"]);
  });
});
