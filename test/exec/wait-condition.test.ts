import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { ManualClock } from "../../src/async/clock.ts";
import { EventLog } from "../../src/exec/event-log.ts";
import type { WaitParams, WaitResult } from "../../src/exec/exec-process.ts";
import { OutputMatcher } from "../../src/exec/output-matcher.ts";
import { waitOn } from "../../src/exec/wait-condition.ts";
import { RequestError } from "../../src/protocol/errors.ts";

const EXIT = { exitCode: 5, signal: null, reason: "exited", sandboxDenied: false } as const;
const bytes = (text: string) => new TextEncoder().encode(text);

function setup(isPortListening: (port: number) => Promise<boolean> = async () => false) {
  const clock = new ManualClock();
  const log = new EventLog({ clock });
  let result: WaitResult | Error | null = null;
  const wait = async (params: WaitParams) => {
    const done = waitOn({ log, clock, isPortListening }, params).then(
      (value) => {
        result = value;
      },
      (error: Error) => {
        result = error;
      },
    );
    await clock.advance(0);
    return done;
  };
  return { clock, log, wait, result: () => result };
}

/** Lets what does not depend on the clock come to rest. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}

describe("waiting", () => {
  test("for the exit ends with the code, also when it came before", async () => {
    const { log, wait, result } = setup();
    void wait({});
    await settle();
    assert.equal(result(), null);
    log.exited(EXIT);
    await settle();
    assert.deepEqual(result(), { reason: "exited", exitCode: 5, signal: null, seq: 1 });
    await wait({ until: { type: "exit" } });
    assert.deepEqual(result(), { reason: "exited", exitCode: 5, signal: null, seq: 1 });
  });

  test("ends with timeout when nothing came, and leaves no timer", async () => {
    const { clock, wait, result } = setup();
    void wait({ timeoutMs: 100 });
    await clock.advance(99);
    assert.equal(result(), null);
    await clock.advance(1);
    assert.deepEqual(result(), { reason: "timeout", exitCode: null, signal: null, seq: 0 });
    assert.equal(clock.pendingTimers, 0);
  });

  test("for quiet ends that long after the last event", async () => {
    const { clock, log, wait, result } = setup();
    void wait({ until: { type: "idle", quietMs: 100 } });
    await clock.advance(60);
    log.append("stdout", bytes("x"));
    await clock.advance(99);
    assert.equal(result(), null);
    await clock.advance(1);
    assert.equal((result() as WaitResult).reason, "idle");
  });

  test("for bytes counts from the cursor", async () => {
    const { log, wait, result } = setup();
    log.append("stdout", bytes("12345"));
    void wait({ until: { type: "bytes", count: 3 }, afterSeq: 1 });
    await settle();
    assert.equal(result(), null);
    log.append("stderr", bytes("678"));
    await settle();
    assert.equal((result() as WaitResult).reason, "reached");
  });

  test("for a port looks again until somebody listens", async () => {
    let listening = false;
    const { clock, wait, result } = setup(async () => listening);
    void wait({ until: { type: "port", port: 80 } });
    await clock.advance(500);
    assert.equal(result(), null);
    listening = true;
    await clock.advance(100);
    assert.equal((result() as WaitResult).reason, "listening");
  });

  test("for a pattern finds it across chunks and in what was printed before, on the stream that was asked for", async () => {
    const { log, wait, result } = setup();
    log.append("stderr", bytes("ready on 80"));
    log.append("stdout", bytes("rea"));
    void wait({ until: { type: "output", pattern: "ready on (\\d+)\n", stream: "stdout" } });
    await settle();
    assert.equal(result(), null);
    log.append("stdout", bytes("dy on 7"));
    log.append("stderr", bytes("noise"));
    log.append("stdout", bytes("0\n"));
    await settle();
    const met = result() as WaitResult;
    assert.equal(met.reason, "matched");
    assert.equal(met.match, "ready on 70\n");
  });

  test("for what can no longer come ends with closed", async () => {
    const { log, wait, result } = setup();
    void wait({ until: { type: "output", pattern: "never" } });
    log.append("stdout", bytes("something"));
    log.exited(EXIT);
    log.closed();
    await settle();
    assert.deepEqual(result(), { reason: "closed", exitCode: 5, signal: null, seq: 3 });
  });

  test("with a pattern that does not compile, or is too large, is refused as bad params", async () => {
    for (const pattern of ["(", "a{1000}{1000}", "(?<=x)y"]) {
      const { wait, result } = setup();
      await wait({ until: { type: "output", pattern } });
      const error = result();
      assert.ok(error instanceof RequestError, pattern);
      assert.equal(error.code, -32602);
    }
  });
});

describe("the matcher", () => {
  test("finds what a search of the whole text finds, wherever it is cut", async () => {
    const pattern = "b+c|é$|x\\by";
    const alphabet = fc.constantFrom("a", "b", "c", "é", "x", " ", "y");
    await fc.assert(
      fc.asyncProperty(fc.array(alphabet, { maxLength: 30 }), fc.array(fc.nat()), async (letters, cuts) => {
        const whole = Buffer.from(letters.join(""));
        const places = [...new Set(cuts.map((cut) => cut % (whole.length + 1)))].sort((a, b) => a - b);
        const matcher = new OutputMatcher(pattern);
        let found: string | null = null;
        let from = 0;
        for (const place of [...places, whole.length]) {
          found ??= await matcher.push("stdout", whole.subarray(from, place));
          from = place;
        }
        const expected = /b+c/.exec(whole.toString())?.[0];
        if (expected !== undefined) assert.ok(found !== null);
        if (found !== null) assert.ok(whole.toString().includes(found));
      }),
    );
  });

  test("is not stalled by a pathological pattern: other work goes on between its slices", async () => {
    const matcher = new OutputMatcher("(a*)*(a*)*(a*)*(a*)*b");
    let ticks = 0;
    const timer = setInterval(() => ticks++, 1);
    try {
      const pushed = matcher.push("stdout", new Uint8Array(1_000_000).fill(97));
      assert.equal(await pushed, null);
      assert.ok(ticks > 3, `only ${ticks} other things happened meanwhile`);
    } finally {
      clearInterval(timer);
    }
  });
});
