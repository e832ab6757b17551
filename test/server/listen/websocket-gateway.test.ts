import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { ManualClock } from "../../../src/async/clock.ts";
import type { AcceptedSocket, AcceptedSocketEvents } from "../../../src/connection/accepted-socket.ts";
import { plainByteCodec } from "../../../src/connection/byte-codec.ts";
import { WRONG_TOKEN_DELAY_MS } from "../../../src/server/auth/websocket-auth.ts";
import { descriptorLimit, shareDescriptors } from "../../../src/server/descriptor-shares.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { FrontDoor } from "../../../src/server/listen/websocket-gateway.ts";
import { LOCAL } from "../../../src/server/principal.ts";
import { MAX_OUTSIDE } from "../../../src/server/server-config.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { until } from "../../support/system/until.ts";

/** A connection that remembers what was done to it. */
class Visitor implements AcceptedSocket {
  readonly peerName = "visitor";
  readonly peerUid = null;
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

  handOver(): null {
    throw new Error("it was handed over");
  }

  upgrade(): never {
    throw new Error("it was let in");
  }
}

describe("the front door", () => {
  function visit() {
    const clock = new ManualClock();
    const door = new FrontDoor(
      new ExecServer(new FakeHost()),
      { auth: { type: "none" }, unasked: () => LOCAL, hosts: new Set() },
      plainByteCodec,
      clock,
    );
    const visitor = new Visitor();
    door.take(visitor);
    return { clock, door, visitor };
  }

  test("answers 408 to a request that is not whole within ten seconds, and ignores later bytes", async () => {
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

  test("answers a wrong token late, so that guessing is slow, and a missing one at once", async () => {
    const clock = new ManualClock();
    const sha256 = createHash("sha256").update("right").digest();
    const door = new FrontDoor(
      new ExecServer(new FakeHost()),
      { auth: { type: "capability-token", sha256 }, unasked: () => LOCAL, hosts: new Set() },
      plainByteCodec,
      clock,
    );
    const knock = (headers: string) => {
      const visitor = new Visitor();
      door.take(visitor);
      visitor.events?.bytes(
        Buffer.from(
          `GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n${headers}\r\n`,
        ),
      );
      return visitor;
    };
    const wrong = knock("authorization: Bearer wrong\r\n");
    const missing = knock("");
    await until("the missing one is answered", () => missing.done.length > 0);
    assert.deepEqual(missing.done, ["HTTP/1.1 401 Unauthorized", "end"]);
    await clock.advance(WRONG_TOKEN_DELAY_MS - 1);
    assert.deepEqual(wrong.done, []);
    await clock.advance(1);
    assert.deepEqual(wrong.done, ["HTTP/1.1 401 Unauthorized", "end"]);
  });

  test("drops a connection that leaves before its request is whole, and all that remain when it closes", async () => {
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

  test("drops the oldest pending connection when there are more than the limit", async () => {
    const clock = new ManualClock();
    const server = new ExecServer(new FakeHost());
    const shares = { outside: 3, connections: 10 };
    const door = new FrontDoor(
      server,
      { auth: { type: "none" }, unasked: () => LOCAL, hosts: new Set() },
      plainByteCodec,
      clock,
      shares,
    );
    const visitors = Array.from({ length: 5 }, () => new Visitor());
    const [first, second, third, fourth, fifth] = visitors;
    for (const visitor of visitors.slice(0, 3)) door.take(visitor);
    assert.ok(visitors.every(({ done }) => done.length === 0));
    // A connection that is being answered still counts as pending.
    second?.events?.bytes(Buffer.from("GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    if (fourth) door.take(fourth);
    assert.deepEqual(first?.done, ["destroy"]);
    assert.deepEqual(third?.done, []);
    // One that leaves by itself makes room.
    third?.events?.end();
    await third?.closed;
    if (fifth) door.take(fifth);
    assert.deepEqual(second?.done, ["HTTP/1.1 200 OK", "end"]);
    assert.deepEqual([fourth?.done, fifth?.done], [[], []]);
  });

  test("divides the descriptors among pending connections, accepted ones and the work itself", () => {
    assert.deepEqual(shareDescriptors(256), { outside: 32, connections: 128 });
    assert.equal(shareDescriptors(Number.POSITIVE_INFINITY).outside, MAX_OUTSIDE);
    assert.deepEqual(shareDescriptors(1), { outside: 1, connections: 1 });
    assert.ok(descriptorLimit() > 2);
    assert.equal(descriptorLimit("/nowhere"), Number.POSITIVE_INFINITY);
  });
});
