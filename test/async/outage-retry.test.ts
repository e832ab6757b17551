import assert from "node:assert/strict";
import { test } from "node:test";
import { OutageRetry } from "../../src/async/outage-retry.ts";
import { isLostConnection } from "../../src/fanout/ledger/postgres/connection-loss.ts";
import { ManualClock } from "../support/manual-clock.ts";

const refused = () => Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });

function outageOf(options: { timeoutMs: number; signal?: AbortSignal }) {
  const clock = new ManualClock();
  const world = { isAway: true, probes: 0, told: [] as string[] };
  const outage = new OutageRetry({
    ...options,
    messages: { waiting: "it is back", back: "the database is back", gaveUp: "the database has been away" },
    isOutage: isLostConnection,
    clock,
    report: (message) => world.told.push(message),
    probe: async () => {
      world.probes++;
      if (world.isAway) throw refused();
    },
  });
  const statement = async () => {
    if (world.isAway) throw refused();
    return "done";
  };
  return { clock, world, outage, statement };
}

test("statements wait together during an outage, and each outage is reported once at its start and end", async () => {
  const { clock, world, outage, statement } = outageOf({ timeoutMs: 600_000 });
  const riding = Array.from({ length: 5 }, () => outage.run(statement));
  await clock.advance(60_000);
  assert.ok(world.probes < 300, `${world.probes} probes for all of them`);
  world.isAway = false;
  await clock.advance(1_000);
  assert.deepEqual(await Promise.all(riding), Array(5).fill("done"));
  assert.equal(world.told.length, 2);
  assert.match(world.told[0] ?? "", /ECONNREFUSED; waiting until it is back/);
  assert.match(world.told[1] ?? "", /back after 60 s/);
});

test("statements fail when an outage lasts longer than its timeout", async () => {
  const { clock, outage, statement } = outageOf({ timeoutMs: 600_000 });
  const riding = assert.rejects(outage.run(statement), /the database has been away for 600 s: connect ECONN/);
  await clock.advance(601_000);
  await riding;
});

test("an interrupted process waits at most a few seconds for the database", async () => {
  const { clock, outage, statement } = outageOf({ timeoutMs: 600_000, signal: AbortSignal.abort() });
  const riding = assert.rejects(outage.run(statement), /away for 3 s/);
  await clock.advance(5_000);
  await riding;
});

test("OutageRetry does not treat a database error response as an outage", async () => {
  const { outage, world } = outageOf({ timeoutMs: 600_000 });
  const error = Object.assign(new Error("duplicate key"), { code: "23505" });
  await assert.rejects(
    outage.run(async () => {
      throw error;
    }),
    error,
  );
  assert.equal(world.probes, 0);
});

test("after the outage timeout, each statement is tried once without waiting until the database is back", async () => {
  const { clock, outage, statement, world } = outageOf({ timeoutMs: 60_000 });
  const first = assert.rejects(outage.run(statement), /away for 60 s/);
  await clock.advance(61_000);
  await first;
  await assert.rejects(outage.run(statement), /away for 61 s/);
  world.isAway = false;
  assert.equal(await outage.run(statement), "done");
  world.isAway = true;
  const later = outage.run(statement);
  await clock.advance(30_000);
  world.isAway = false;
  await clock.advance(1_000);
  assert.equal(await later, "done");
});

test("OutageRetry reports the time since the last outage, so that an outage does not make workers look dead", async () => {
  const { clock, outage, statement, world } = outageOf({ timeoutMs: 60_000 });
  assert.equal(outage.healthyForMs, Number.POSITIVE_INFINITY);
  const riding = outage.run(statement);
  await clock.advance(5_000);
  assert.equal(outage.healthyForMs, 0);
  world.isAway = false;
  await clock.advance(250);
  await riding;
  await clock.advance(2_000);
  assert.ok(outage.healthyForMs >= 2_000 && outage.healthyForMs <= 2_250);
});
