import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import type { AcceptedSocket, AcceptedSocketEvents } from "../../../src/connection/accepted-socket.ts";
import { nodeByteCodec } from "../../../src/connection/byte-codec.ts";
import { Authenticator } from "../../../src/server/auth/authenticator.ts";
import { LOCAL_PRINCIPAL } from "../../../src/server/auth/principal.ts";
import { INVALID_TOKEN_DELAY_MS } from "../../../src/server/auth/websocket-auth.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { fdQuotaFor, readFdLimit } from "../../../src/server/listen/fd-quota.ts";
import { WebSocketGateway } from "../../../src/server/listen/websocket-gateway.ts";
import { MAX_PENDING_SOCKETS } from "../../../src/server/server-config.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { until } from "../../support/system/until.ts";

/** A connection that records the calls on it. */
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

  detachToNode(): null {
    throw new Error("it was handed over");
  }

  upgrade(): never {
    throw new Error("it was let in");
  }
}

describe("WebSocketGateway", () => {
  function visit() {
    const clock = new ManualClock();
    const gateway = new WebSocketGateway(
      new ExecServer(new FakeHost()),
      { auth: new Authenticator({ type: "none" }), anonymousPrincipal: () => LOCAL_PRINCIPAL, allowedHosts: new Set() },
      nodeByteCodec,
      clock,
    );
    const visitor = new Visitor();
    gateway.handleSocket(visitor);
    return { clock, gateway, visitor };
  }

  test("responds with 408 to a request head that is incomplete after ten seconds, and ignores later bytes", async () => {
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

  test("delays the response to a wrong token, but not to a missing token", async () => {
    const clock = new ManualClock();
    const sha256 = createHash("sha256").update("right").digest();
    const gateway = new WebSocketGateway(
      new ExecServer(new FakeHost()),
      {
        auth: new Authenticator({ type: "capability-token", sha256 }),
        anonymousPrincipal: () => LOCAL_PRINCIPAL,
        allowedHosts: new Set(),
      },
      nodeByteCodec,
      clock,
    );
    const knock = (headers: string) => {
      const visitor = new Visitor();
      gateway.handleSocket(visitor);
      visitor.events?.bytes(
        Buffer.from(
          `GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n${headers}\r\n`,
        ),
      );
      return visitor;
    };
    const wrong = knock("authorization: Bearer wrong\r\n");
    const missing = knock("");
    await until("the request without a token has a response", () => missing.done.length > 0);
    assert.deepEqual(missing.done, ["HTTP/1.1 401 Unauthorized", "end"]);
    await clock.advance(INVALID_TOKEN_DELAY_MS - 1);
    assert.deepEqual(wrong.done, []);
    await clock.advance(1);
    assert.deepEqual(wrong.done, ["HTTP/1.1 401 Unauthorized", "end"]);
  });

  test("destroys a socket that ends before its request is complete, and all pending sockets when it closes", async () => {
    const left = visit();
    left.visitor.events?.bytes(Buffer.from("GET"));
    left.visitor.events?.end();
    assert.deepEqual(left.visitor.done, ["destroy"]);
    await left.clock.advance(60_000);
    assert.deepEqual(left.visitor.done, ["destroy"]);

    const silent = visit();
    let isOpen = true;
    const listening = silent.gateway.attachListener({ port: 0, close: () => (isOpen = false) }, "ws://x");
    const closed = listening.close();
    assert.equal(isOpen, false);
    listening.destroyPending();
    await closed;
    assert.deepEqual(silent.visitor.done, ["destroy"]);
  });

  test("destroys the oldest pending socket above the limit", async () => {
    const clock = new ManualClock();
    const server = new ExecServer(new FakeHost());
    const shares = { pendingSockets: 3, connections: 10 };
    const gateway = new WebSocketGateway(
      server,
      { auth: new Authenticator({ type: "none" }), anonymousPrincipal: () => LOCAL_PRINCIPAL, allowedHosts: new Set() },
      nodeByteCodec,
      clock,
      shares,
    );
    const visitors = Array.from({ length: 5 }, () => new Visitor());
    const [first, second, third, fourth, fifth] = visitors;
    for (const visitor of visitors.slice(0, 3)) gateway.handleSocket(visitor);
    assert.ok(visitors.every(({ done }) => done.length === 0));
    // A connection counts as pending until its response is sent.
    second?.events?.bytes(Buffer.from("GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    if (fourth) gateway.handleSocket(fourth);
    assert.deepEqual(first?.done, ["destroy"]);
    assert.deepEqual(third?.done, []);
    // A closed socket frees its place in the quota.
    third?.events?.end();
    await third?.closed;
    if (fifth) gateway.handleSocket(fifth);
    assert.deepEqual(second?.done, ["HTTP/1.1 200 OK", "end"]);
    assert.deepEqual([fourth?.done, fifth?.done], [[], []]);
  });

  test("divides the descriptors among pending sockets, connections and other work", () => {
    assert.deepEqual(fdQuotaFor(256), { pendingSockets: 32, connections: 128 });
    assert.deepEqual(fdQuotaFor(null), { pendingSockets: MAX_PENDING_SOCKETS, connections: null });
    assert.deepEqual(fdQuotaFor(1), { pendingSockets: 1, connections: 1 });
    assert.ok((readFdLimit() ?? 0) > 2);
    assert.equal(readFdLimit("/nowhere"), null);
  });
});
