import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { ExitStatus, WaitParams } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { OutputMatcher } from "../../../src/exec/wait/output-matcher.ts";
import { waitForCondition } from "../../../src/exec/wait/wait-condition.ts";
import { DisconnectedError, RequestError } from "../../../src/protocol/errors.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { runPromiseReactions } from "../../support/system/promise-reactions.ts";

const exit: ExitStatus = { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false };

function setUp(listening: () => boolean = () => false) {
  const clock = new ManualClock();
  const log = new EventLog({ clock });
  const looks = { count: 0 };
  const isPortListening = async () => {
    looks.count++;
    return listening();
  };
  const say = (text: string, stream: "stdout" | "stderr" = "stdout") => log.append(stream, Buffer.from(text));
  const wait = (params?: WaitParams) => waitForCondition({ log, clock, isPortListening }, params);
  return { clock, log, say, wait, looks };
}

describe("waitForCondition", () => {
  test("returns on exit, before or after the call", async () => {
    const { log, wait, say } = setUp();
    const early = wait();
    say("x");
    log.exited(exit);
    const expected = { reason: "exited", exitCode: 3, signal: null, exitReason: "exited", seq: 2 };
    assert.deepEqual(await early, expected);
    assert.deepEqual(await wait(), expected);
  });

  test("finds a pattern across any chunk boundary, in one stream or all", async () => {
    const { log, say, wait } = setUp();
    const bytes = Buffer.from("grüße: ready on 42\n");
    const matched = wait({
      until: { type: "output", pattern: "grüße: ready on \\d+$|grüße: ready on \\d+\\n" },
    });
    const elsewhere = wait({ until: { type: "output", pattern: "ready", stream: "stderr" } });
    for (const byte of bytes) log.append("stdout", Buffer.from([byte]));
    assert.equal((await matched).match, "grüße: ready on 4");
    say("not ", "stderr");
    say("ready", "stdout");
    say("ready", "stderr");
    const result = await elsewhere;
    assert.deepEqual([result.reason, result.match], ["matched", "ready"]);
  });

  test("counts output from before the call, unless afterSeq is set", async () => {
    const { log, say, wait } = setUp();
    say("ready");
    assert.equal((await wait({ until: { type: "output", pattern: "ready" } })).reason, "matched");
    assert.equal((await wait({ until: { type: "bytes", count: 5 } })).reason, "reached");
    const later = wait({ until: { type: "output", pattern: "ready" }, afterSeq: 1 });
    const more = wait({ until: { type: "bytes", count: 5 }, afterSeq: 1 });
    // The next bytes decide, and the wait leaves the event loop to others.
    await flushEventLoop();
    say("more");
    assert.equal(await Promise.race([more, flushEventLoop()]), undefined);
    log.exited(exit);
    say("again");
    log.closed();
    assert.equal((await later).reason, "closed");
    assert.equal((await more).reason, "reached");
  });

  test("returns `closed` if the condition can no longer become true, after checking late output", async () => {
    const { log, say, wait } = setUp();
    const missed = wait({ until: { type: "output", pattern: "never" } });
    const late = wait({ until: { type: "output", pattern: "late" } });
    const many = wait({ until: { type: "bytes", count: 1000 } });
    log.exited(exit);
    say("late");
    log.closed();
    assert.deepEqual(await missed, {
      reason: "closed",
      exitCode: 3,
      signal: null,
      exitReason: "exited",
      seq: 3,
    });
    assert.equal((await late).reason, "matched");
    assert.equal((await many).reason, "closed");
  });

  test("measures silence from the call, and restarts with each output", async () => {
    const { clock, say, wait } = setUp();
    await clock.advance(10_000);
    const idle = wait({ until: { type: "idle", quietMs: 100 } });
    let done = false;
    const settled = idle.then((result) => {
      done = true;
      return result;
    });
    await clock.advance(90);
    say("x");
    await clock.advance(90);
    assert.equal(done, false);
    await clock.advance(10);
    assert.equal((await settled).reason, "idle");
  });

  test("waits for the rest of the silence if a timer fires early", async () => {
    class EarlyClock extends ManualClock {
      earlyMs = 40;
      override after(ms: number, fn: () => void) {
        const timer = super.after(ms - this.earlyMs, fn);
        this.earlyMs = 0;
        return timer;
      }
    }
    const clock = new EarlyClock();
    const context = { log: new EventLog({ clock }), clock, isPortListening: async () => false };
    const idle = waitForCondition(context, { until: { type: "idle", quietMs: 100 } });
    await clock.advance(99);
    assert.equal(await Promise.race([idle, flushEventLoop()]), undefined);
    await clock.advance(1);
    assert.equal((await Promise.race([idle, flushEventLoop()]))?.reason, "idle");
  });

  test("searches only the stream that the caller names", async () => {
    const { say, wait } = setUp();
    const matched = wait({ until: { type: "output", pattern: "x", stream: "stderr" } });
    say("x", "stdout");
    assert.equal(await Promise.race([matched, flushEventLoop()]), undefined);
    say("x", "stderr");
    assert.equal((await matched).seq, 2);
  });

  test("does not match across a gap", async () => {
    const { log, say, wait } = setUp();
    say("rea");
    log.addGap(2, 5);
    say("dy");
    say("steady");
    log.closed();
    assert.equal((await wait({ until: { type: "output", pattern: "ready" } })).reason, "closed");
    assert.equal((await wait({ until: { type: "output", pattern: "st.*y" } })).match, "steady");
  });

  test("times out on the injected clock", async () => {
    const { clock, wait } = setUp();
    const waiting = [
      wait({ timeoutMs: 50 }),
      wait({ until: { type: "output", pattern: "x" }, timeoutMs: 50 }),
      wait({ until: { type: "idle", quietMs: 100 }, timeoutMs: 50 }),
    ];
    await clock.advance(49);
    assert.equal(await Promise.race([...waiting, flushEventLoop()]), undefined);
    await clock.advance(1);
    for (const result of await Promise.all(waiting))
      assert.deepEqual(result, { reason: "timeout", exitCode: null, signal: null, seq: 0 });
    assert.equal(clock.pendingTimers, 0);
  });

  test("polls a port at intervals regardless of output, and once more after close", async () => {
    let listening = false;
    const { clock, log, say, wait, looks } = setUp(() => listening);
    const found = wait({ until: { type: "port", port: 80 } });
    for (let line = 0; line < 100; line++) say("line");
    await clock.advance(200);
    assert.ok(looks.count < 10, `${looks.count} looks`);
    listening = true;
    await clock.advance(50);
    assert.equal((await found).reason, "listening");
    listening = false;
    looks.count = 0;
    const later = wait({ until: { type: "port", port: 80 } });
    await clock.advance(10);
    say("line");
    await clock.advance(39);
    assert.equal(looks.count, 1);
    listening = true;
    await clock.advance(1);
    assert.equal((await later).reason, "listening");
    assert.equal(looks.count, 2);
    listening = false;
    const atEnd = wait({ until: { type: "port", port: 80 } });
    await clock.advance(10);
    listening = true;
    log.exited(exit);
    log.closed();
    assert.equal((await atEnd).reason, "listening");
  });

  test("rejects on abort, on an invalid pattern, and if the process can no longer be tracked", async () => {
    const { log, wait } = setUp();
    const controller = new AbortController();
    const aborted = wait({ signal: controller.signal });
    controller.abort(new Error("enough"));
    await assert.rejects(aborted, /enough/);
    for (const pattern of ["(", "a{2,1}", "\\p{Nope}", "(?:a{900}){900}"])
      await assert.rejects(
        wait({ until: { type: "output", pattern } }),
        (error) => error instanceof RequestError && error.code === -32602 && error.message.includes(pattern),
      );
    const lost = wait();
    log.fail(new DisconnectedError("gone"));
    await assert.rejects(lost, (error) => error instanceof DisconnectedError && error.message.endsWith(": gone"));
  });
});

describe("OutputMatcher", () => {
  test("finds the same match as a search over the whole text, for any chunk boundaries", async () => {
    const texts = fc.string({ unit: fc.constantFrom("a", "b", "\n", " ", "é"), maxLength: 60 });
    const patterns = fc.constantFrom("ab", "a+b", "^b", "(?m)^b", "\\bab", "é a", "b\\n", "aa?b");
    await fc.assert(
      fc.asyncProperty(texts, patterns, fc.array(fc.nat(80), { maxLength: 6 }), async (text, pattern, cuts) => {
        const bytes = Buffer.from(text);
        const whole = await new OutputMatcher(pattern).push("stdout", bytes);
        const matcher = new OutputMatcher(pattern);
        let found: string | null = null;
        const places = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
        for (let at = 1; at < places.length && found === null; at++)
          found = await matcher.push("stdout", bytes.subarray(places[at - 1], places[at]));
        assert.equal(found === null, whole === null);
      }),
      { numRuns: 500 },
    );
  });

  test("finds a match that starts up to 8,192 characters before the text that completes it", async () => {
    for (const [before, match] of [
      [8191, true],
      [8192, false],
    ] as const) {
      const matcher = new OutputMatcher("ab*c");
      assert.equal(await matcher.push("stdout", Buffer.from("z".repeat(9000))), null);
      assert.equal(await matcher.push("stdout", Buffer.from(`a${"b".repeat(before)}`)), null);
      assert.equal((await matcher.push("stdout", Buffer.from("c"))) !== null, match);
    }
  });

  test("retains the beginning of the output until the text exceeds 8,193 characters", async () => {
    for (const [chars, match] of [
      [8192, true],
      [8193, true],
      [8194, false],
    ] as const) {
      const matcher = new OutputMatcher("^ab*c");
      assert.equal(await matcher.push("stdout", Buffer.from(`a${"b".repeat(chars - 1)}`)), null);
      assert.equal((await matcher.push("stdout", Buffer.from("c"))) !== null, match, `${chars} characters`);
    }
  });

  test("searches each character of a long text once, without a wait for the event loop", async () => {
    const matcher = new OutputMatcher("xyx");
    let found: string | null = null;
    void matcher.push("stdout", Buffer.from(`${"a".repeat(8191)}xyx`)).then((match) => (found = match));
    await runPromiseReactions(10);
    assert.equal(found, "xyx");
  });

  test("searches each stream separately, and not across missing output", async () => {
    const matcher = new OutputMatcher("ab");
    await matcher.push("stdout", Buffer.from("a"));
    assert.equal(await matcher.push("stderr", Buffer.from("b")), null);
    matcher.skip();
    assert.equal(await matcher.push("stdout", Buffer.from("b")), null);
  });

  test("rejects a pattern of more than 1,000 instructions", async () => {
    assert.equal(await new OutputMatcher("a{998}").push("stdout", Buffer.from("a")), null);
    assert.throws(() => new OutputMatcher("a{999}"), /compiles to 1001 instructions, more than 1000/);
  });

  test("distinguishes the beginning of the output from its middle", async () => {
    const matcher = new OutputMatcher("^needle");
    assert.equal(await matcher.push("stdout", Buffer.from("x".repeat(50_000))), null);
    assert.equal(await matcher.push("stdout", Buffer.from("needle")), null);
    const lines = new OutputMatcher("(?m)^needle");
    await lines.push("stdout", Buffer.from("x".repeat(50_000)));
    assert.equal(await lines.push("stdout", Buffer.from("needle")), null);
    assert.equal(await lines.push("stdout", Buffer.from("\nneedle")), "needle");
  });

  test("takes linear time for a pattern that is exponential in other engines", async () => {
    const matcher = new OutputMatcher("(x+x+)+y");
    assert.equal(await matcher.push("stdout", Buffer.from("x".repeat(100_000))), null);
    assert.ok(await matcher.push("stdout", Buffer.from("y")));
  });

  test("yields to the event loop during a long text", async () => {
    const matcher = new OutputMatcher("(?i)(a|b|c|d){20}z");
    let turns = 0;
    const ticking = setInterval(() => turns++, 0);
    await matcher.push("stdout", Buffer.from("abcd".repeat(20_000)));
    clearInterval(ticking);
    assert.ok(turns > 1, `${turns} turns`);
  });
});
