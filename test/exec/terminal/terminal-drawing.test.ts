import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { QueryGate, QueryStripper } from "../../../src/exec/terminal/terminal-queries.ts";
import { TerminalResponder } from "../../../src/exec/terminal/terminal-responder.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { until } from "../../support/system/until.ts";

const MIB = 1024 * 1024;
const CURSOR = "\x1b[6n";

function rig(retainedBytes = 8 * MIB) {
  const log = new EventLog({ limits: { retainedBytes } });
  const replies: string[] = [];
  const size = { rows: 24, cols: 80 };
  const responder = new TerminalResponder({
    log,
    size: () => size,
    reply: (bytes) => replies.push(Buffer.from(bytes).toString()),
  });
  const print = (text: string) => {
    const chunk = Buffer.from(text);
    log.append("pty", chunk);
    responder.feed(chunk);
  };
  const replied = (count: number) => until(`${count} replies`, () => replies.length >= count);
  return { log, responder, replies, size, print, replied };
}

describe("TerminalResponder", () => {
  test("draws the output before a query, also if the query spans two chunks", async () => {
    const { replies, print, replied } = rig();
    print("abc\x1b[");
    print("6n");
    await replied(1);
    print(`d${CURSOR}`);
    await replied(2);
    assert.deepEqual(replies, ["\x1b[1;4R", "\x1b[1;5R"]);
  });

  test("wraps lines at the current size", async () => {
    const { replies, size, print, replied } = rig();
    print(CURSOR);
    await replied(1);
    size.cols = 10;
    print(`${"x".repeat(15)}${CURSOR}`);
    await replied(2);
    assert.equal(replies[1], "\x1b[2;6R");
  });

  test("disposes the emulator once it has replied to the last query", async (t) => {
    const { default: xterm } = await import("@xterm/headless");
    const dispose = t.mock.method(xterm.Terminal.prototype, "dispose");
    const { responder, print, replied } = rig();
    print(CURSOR);
    responder.finish();
    await replied(1);
    await until("the emulator is disposed", () => dispose.mock.callCount() === 1);
  });

  test("does not reply if the emulator fails to open", async () => {
    const log = new EventLog();
    const size = () => {
      throw new Error("no size");
    };
    const responder = new TerminalResponder({ log, size, reply: () => assert.fail("a reply") });
    log.append("pty", Buffer.from(CURSOR));
    responder.feed(Buffer.from(CURSOR));
    responder.finish();
    // A rejection without a handler would fail the test.
    await flushEventLoop();
  });

  test("does not reply to queries while more than 1 MiB waits to be drawn", async () => {
    const { replies, print, replied } = rig();
    print(`${"x".repeat(MIB)}\x1b[5;1H${CURSOR}`);
    print(CURSOR);
    await replied(1);
    print(`\x1b[7;1H${CURSOR}`);
    await replied(2);
    // The second query is drawn together with the third.
    assert.deepEqual(replies, ["\x1b[5;1R", "\x1b[7;1R"]);
  });

  test("starts with an empty screen after evicted output, and follows the size", async () => {
    const { replies, size, print, replied } = rig(4096);
    print(`\x1b[9;9H${CURSOR}`);
    await replied(1);
    print("\x1b[2;1H".padEnd(4096, " "));
    print("y".repeat(4096));
    size.rows = 3;
    print(`${CURSOR}\x1b[18t`);
    await replied(2);
    assert.equal(replies[0], "\x1b[9;9R");
    assert.equal(replies[1], "\x1b[1;1R\x1b[8;3;80t");
  });

  test("replays queries in a range of past output, once", async () => {
    const { log, responder, replies, print, replied } = rig();
    for (const text of [`a${CURSOR}`, "b\x1b[", "6n", `c${CURSOR}`]) log.append("pty", Buffer.from(text));
    responder.replay({ afterSeq: 2, throughSeq: 3 });
    await replied(1);
    print(CURSOR);
    await replied(2);
    assert.deepEqual(replies, ["\x1b[1;3R", "\x1b[1;4R"]);
    const unasked = rig();
    unasked.log.append("pty", Buffer.from(CURSOR));
    unasked.responder.replay({ afterSeq: 1 });
    unasked.print(`z${CURSOR}`);
    await unasked.replied(1);
    assert.deepEqual(unasked.replies, ["\x1b[1;2R"]);
  });

  test("replies to pending queries after `finish`, and to none after `dispose`", async () => {
    const finished = rig();
    finished.print(CURSOR);
    finished.responder.finish();
    finished.print(`a${CURSOR}`);
    await finished.replied(1);
    const disposed = rig();
    disposed.print(CURSOR);
    disposed.responder.dispose();
    disposed.print(CURSOR);
    const other = rig();
    other.print(CURSOR);
    await other.replied(1);
    assert.deepEqual([finished.replies, disposed.replies], [["\x1b[1;1R"], []]);
  });
});

describe("QueryGate", () => {
  test("shows granted queries whole, removes others, and claims only output with a query", async () => {
    const claims: number[] = [];
    const gate = new QueryGate(async (seq) => {
      claims.push(seq);
      return seq === 3;
    });
    const shown = async (text: string, seq: number) => Buffer.from(await gate.push(Buffer.from(text), seq)).toString();
    assert.equal(await shown("plain\x1b[1m", 1), "plain\x1b[1m");
    assert.equal(await shown("a\x1b[", 2), "a");
    assert.equal(await shown("6nb", 3), "\x1b[6nb");
    assert.equal(await shown("c\x1b[6nd\x1b[5ne\x1b", 4), "cde");
    assert.equal(Buffer.from(gate.flush()).toString(), "\x1b");
    assert.equal(gate.flush().length, 0);
    assert.deepEqual(claims, [3, 4]);
  });

  test("does not share memory with the chunk that ends in an incomplete sequence", () => {
    const stripper = new QueryStripper();
    const chunk = Buffer.from("a\x1b[");
    stripper.push(chunk);
    chunk.fill(0);
    assert.equal(Buffer.from(stripper.push(Buffer.from("1m"))).toString(), "\x1b[1m");
  });
});
