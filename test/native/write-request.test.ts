import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { AcceptedSocket } from "../../src/connection/accepted-socket.ts";
import { nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { toConnectionEvent } from "../../src/connection/connection.ts";
import { FrameWriter } from "../../src/connection/frame-writer.ts";
import { nativeListener } from "../../src/native/native-sockets.ts";
import type { Message } from "../../src/protocol/envelope.ts";
import { routeMessage } from "../../src/server/rpc/route-message.ts";
import { tcpPort } from "../support/servers/websocket-server.ts";
import { addon, NO_ADDON } from "./started.ts";

describe("parseWriteRequest", { skip: NO_ADDON }, () => {
  /** The result of the general parser and routing for a text: the params of a write, or something else. */
  function byText(text: string): unknown {
    const event = toConnectionEvent(text, "test");
    return event.type === "message" ? routeWrite(event.message) : event.type;
  }

  function routeWrite(message: Message): unknown {
    try {
      const routed = routeMessage(message);
      if (routed.type !== "request" || routed.method !== "process/write") return routed.type;
      return { id: routed.id, ...routed.params, chunk: Buffer.from(routed.params.chunk).toString("hex") };
    } catch (error) {
      return String(error);
    }
  }

  /** The addon's result for each text: the params of a write, or null where it leaves the text to the parser. */
  async function byBytes(texts: readonly string[]): Promise<unknown[]> {
    const accepted = Promise.withResolvers<AcceptedSocket>();
    const listener = await nativeListener(addon())({ host: "127.0.0.1", port: 0 }, accepted.resolve);
    const client = connect(tcpPort(listener), "127.0.0.1");
    const [socket] = await Promise.all([accepted.promise, once(client, "connect")]);
    socket.start({ bytes: () => undefined, end: () => undefined });
    const found: unknown[] = [];
    const all = Promise.withResolvers<void>();
    const took = (what: unknown) => {
      found.push(what);
      if (found.length === texts.length) all.resolve();
    };
    socket.upgrade({ maxMessageBytes: 1 << 20, maxQueuedBytes: 1 << 20, received: Buffer.alloc(0) }).open({
      bytes: () => all.reject(new Error("a whole message was passed on as bytes")),
      text: () => took(null),
      message: () => took(null),
      decoded: (message) => took(routeWrite(message)),
      drain: () => undefined,
      end: () => undefined,
      close: () => undefined,
    });
    const writer = new FrameWriter("client", nodeByteCodec);
    client.write(Buffer.concat(texts.map((text) => writer.text(text))));
    await all.promise;
    client.destroy();
    socket.destroy();
    listener.close();
    return found;
  }

  const blank = fc.constantFrom("", " ", "\n\t", "\r");
  const value = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.constantFrom(
        '"p"',
        '""',
        '"aGk="',
        '"aGk"',
        '"_-8="',
        '"YR=="',
        '"a b"',
        '"é"',
        '"\\u0041"',
        '"\\""',
        '"\u0001"',
      ),
    },
    fc.constantFrom(
      "1",
      "0",
      "-7",
      "01",
      "1.0",
      "1e3",
      "null",
      "true",
      "{}",
      "[]",
      "9007199254740993",
      "-9223372036854775808",
    ),
    fc.base64String({ maxLength: 40 }).map((text) => JSON.stringify(text)),
  );
  const member = fc.tuple(fc.constantFrom("processId", "writeId", "chunk", "chunk", "more", "id"), value);
  const params = fc.array(member, { maxLength: 4 });
  const outer = fc.array(
    fc.oneof(
      fc.constantFrom<[string, string]>(
        ["id", "1"],
        ["id", '"x"'],
        ["method", '"process/write"'],
        ["method", '"process/read"'],
        ["trace", "null"],
        ["jsonrpc", '"2.0"'],
      ),
      fc.tuple(fc.constant("id"), value),
    ),
    { maxLength: 3 },
  );
  const object = (gap: string, all: [string, string][]) =>
    `{${gap}${all.map(([key, text]) => `"${key}"${gap}:${gap}${text}`).join(`${gap},${gap}`)}${gap}}`;
  const anything = fc.tuple(outer, params, blank, fc.nat()).map(([members, inner, gap, place]) => {
    const all: [string, string][] = [...members];
    all.splice(place % (all.length + 1), 0, ["params", object(gap, inner)]);
    return gap + object(gap, all) + gap;
  });
  const members = fc.shuffledSubarray<[string, string]>(
    [
      ["processId", '"p"'],
      ["writeId", '"w"'],
      ["chunk", '"aGk="'],
    ],
    { minLength: 2 },
  );
  const order = fc.shuffledSubarray(["id", "method", "params"], { minLength: 3 });
  const wellFormed = fc.tuple(members, order, value, blank).map(([inner, keys, id, gap]) => {
    const texts: Record<string, string> = { id, method: '"process/write"', params: object(gap, inner) };
    return object(
      gap,
      keys.map((key) => [key, texts[key] ?? ""]),
    );
  });
  const message = fc.oneof({ weight: 3, arbitrary: anything }, { weight: 1, arbitrary: wellFormed });

  test("returns the result of the general parser, or undefined", async () => {
    const whole = '{"id":1,"method":"process/write","params":{"processId":"p","chunk":"aGk=","writeId":"w"}}';
    const texts = [whole, ...fc.sample(message, 20_000)];
    let taken = 0;
    for (const [at, fast] of (await byBytes(texts)).entries()) {
      if (fast === null) continue;
      taken++;
      assert.deepEqual(fast, byText(texts[at] ?? ""), texts[at]);
    }
    assert.deepEqual((await byBytes([whole]))[0], byText(whole));
    assert.ok(taken > 100, `only ${taken} messages were taken by their bytes`);
  });

  test("agrees with the general parser on truncated and modified messages", async () => {
    const whole = '{"id":12,"method":"process/write","params":{"processId":"p-1","chunk":"aGVsbG8=","writeId":"w"}}';
    const cut = Array.from(whole, (_, length) => whole.slice(0, length));
    assert.ok((await byBytes(cut)).every((found) => found === null));
    const letters = ['"', "\\", "{", "}", ",", ":", "0", "a", " ", "=", "-", "\n", "\u0000", "é"];
    const changed = Array.from(whole, (_, at) =>
      letters.map((letter) => whole.slice(0, at) + letter + whole.slice(at + 1)),
    ).flat();
    for (const [at, fast] of (await byBytes(changed)).entries())
      if (fast !== null) assert.deepEqual(fast, byText(changed[at] ?? ""), changed[at]);
  });
});
