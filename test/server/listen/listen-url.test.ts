import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  DEFAULT_LISTEN_URL,
  ExecServerTransport,
  isLoopback,
  ListenUrlError,
} from "../../../src/server/listen/listen-url.ts";

function refused(url: string): ListenUrlError {
  try {
    ExecServerTransport.fromListenUrl(url);
  } catch (error) {
    assert.ok(error instanceof ListenUrlError);
    return error;
  }
  assert.fail(`${url} was accepted`);
}

describe("ExecServerTransport", () => {
  test("parses the stdio listen URL", () => {
    assert.equal(DEFAULT_LISTEN_URL, "stdio://");
    assert.deepEqual(ExecServerTransport.fromListenUrl(DEFAULT_LISTEN_URL), { type: "stdio" });
    assert.deepEqual(ExecServerTransport.fromListenUrl("stdio"), { type: "stdio" });
  });

  test("parses a WebSocket listen URL", () => {
    assert.deepEqual(ExecServerTransport.fromListenUrl("ws://127.0.0.1:1234"), {
      type: "websocket",
      host: "127.0.0.1",
      port: 1234,
    });
    assert.deepEqual(ExecServerTransport.fromListenUrl("ws://[::1]:0"), {
      type: "websocket",
      host: "::1",
      port: 0,
    });
  });

  test("rejects an invalid WebSocket listen URL", () => {
    assert.equal(
      refused("ws://localhost:1234").message,
      "invalid websocket --listen URL `ws://localhost:1234`; expected `ws://IP:PORT`",
    );
  });

  test("rejects an unsupported listen URL", () => {
    assert.equal(
      refused("http://127.0.0.1:1234").message,
      "unsupported --listen URL `http://127.0.0.1:1234`; expected `stdio://`, `unix://PATH` or `ws://IP:PORT`",
    );
  });

  test("parses a unix listen URL with an absolute path", () => {
    assert.deepEqual(ExecServerTransport.fromListenUrl("unix:///run/x.sock"), {
      type: "unix",
      path: "/run/x.sock",
    });
    for (const url of ["unix://", "unix://relative", `unix:///${"x".repeat(107)}`]) {
      assert.equal(refused(url).kind, "invalidUnix");
    }
  });

  for (const url of [
    "ws://127.0.0.1",
    "ws://127.0.0.1:",
    "ws://127.0.0.1:65536",
    "ws://127.0.0.1:1/",
    "ws://127.0.0.1:1/path",
    "ws://::1:5",
    "ws://[127.0.0.1]:5",
    "ws://[::1]",
    "ws://1.2.3:5",
    "ws:// 127.0.0.1:5",
    "ws://127.0.0.1:+5",
    "ws://127.0.0.1:0x5",
    "ws://user@127.0.0.1:5",
    "ws://",
  ]) {
    test(`rejects ${url} as an invalid WebSocket URL`, () => assert.equal(refused(url).kind, "invalidWebSocket"));
  }

  for (const url of ["", "wss://127.0.0.1:1", "tcp://127.0.0.1:1", "WS://127.0.0.1:1", "stdio:", "/tmp/x"]) {
    test(`rejects ${JSON.stringify(url)} as unsupported`, () => assert.equal(refused(url).kind, "unsupported"));
  }

  test("formats a transport as the URL that it was parsed from", () => {
    const transport = fc.oneof(
      fc.record({
        type: fc.constant("websocket" as const),
        host: fc.oneof(
          fc.ipV4(),
          fc.ipV6().filter((ip) => !ip.includes(".")),
        ),
        port: fc.integer({ min: 0, max: 65_535 }),
      }),
      fc.record({ type: fc.constant("unix" as const), path: fc.stringMatching(/^\/[a-z /.]{1,50}$/) }),
    );
    fc.assert(
      fc.property(transport, (one) => {
        assert.deepEqual(ExecServerTransport.fromListenUrl(ExecServerTransport.toUrl(one)), { ...one });
      }),
    );
  });
});

test("isLoopback accepts only loopback addresses", () => {
  for (const host of ["127.0.0.1", "127.9.9.9", "::1"]) assert.ok(isLoopback(host), host);
  for (const host of ["0.0.0.0", "::", "10.0.0.1", "192.168.0.1", "fe80::1"]) assert.ok(!isLoopback(host), host);
});
