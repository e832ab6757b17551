import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import { Outage } from "../../src/async/outage.ts";
import { isLostConnection } from "../../src/fanout/ledger/postgres/connection-loss.ts";

const refused = () => Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });

function outageOf(options: { patienceMs: number; signal?: AbortSignal }) {
  const clock = new ManualClock();
  const world = { isAway: true, probes: 0, told: [] as string[] };
  const outage = new Outage({
    ...options,
    words: { waiting: "it is back", back: "the database is back", gaveUp: "the database has been away" },
    isLoss: isLostConnection,
    clock,
    tell: (message) => world.told.push(message),
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

test("statements wait together while the database is down, and each loss and return is reported once", async () => {
  const { clock, world, outage, statement } = outageOf({ patienceMs: 600_000 });
  const riding = Array.from({ length: 5 }, () => outage.ride(statement));
  await clock.advance(60_000);
  assert.ok(world.probes < 300, `${world.probes} probes for all of them`);
  world.isAway = false;
  await clock.advance(1_000);
  assert.deepEqual(await Promise.all(riding), Array(5).fill("done"));
  assert.equal(world.told.length, 2);
  assert.match(world.told[0] ?? "", /ECONNREFUSED; waiting until it is back/);
  assert.match(world.told[1] ?? "", /back after 60 s/);
});

test("statements fail when the database stays down longer than the patience", async () => {
  const { clock, outage, statement } = outageOf({ patienceMs: 600_000 });
  const riding = assert.rejects(
    outage.ride(statement),
    /the database has been away for 600 s: connect ECONN/,
  );
  await clock.advance(601_000);
  await riding;
});

test("a process that was told to end waits a few seconds at most for the database", async () => {
  const { clock, outage, statement } = outageOf({ patienceMs: 600_000, signal: AbortSignal.abort() });
  const riding = assert.rejects(outage.ride(statement), /away for 3 s/);
  await clock.advance(5_000);
  await riding;
});

test("a refusal by the database itself is no outage", async () => {
  const { outage, world } = outageOf({ patienceMs: 600_000 });
  const error = Object.assign(new Error("duplicate key"), { code: "23505" });
  await assert.rejects(
    outage.ride(async () => {
      throw error;
    }),
    error,
  );
  assert.equal(world.probes, 0);
});

test("after the patience has run out a statement is tried once without waiting, until the database is back", async () => {
  const { clock, outage, statement, world } = outageOf({ patienceMs: 60_000 });
  const first = assert.rejects(outage.ride(statement), /away for 60 s/);
  await clock.advance(61_000);
  await first;
  await assert.rejects(outage.ride(statement), /away for 61 s/);
  world.isAway = false;
  assert.equal(await outage.ride(statement), "done");
  world.isAway = true;
  const later = outage.ride(statement);
  await clock.advance(30_000);
  world.isAway = false;
  await clock.advance(1_000);
  assert.equal(await later, "done");
});

test("the time since the last outage is known, so that no worker is judged by a silence that an outage caused", async () => {
  const { clock, outage, statement, world } = outageOf({ patienceMs: 60_000 });
  assert.equal(outage.steadyMs, Number.POSITIVE_INFINITY);
  const riding = outage.ride(statement);
  await clock.advance(5_000);
  assert.equal(outage.steadyMs, 0);
  world.isAway = false;
  await clock.advance(250);
  await riding;
  await clock.advance(2_000);
  assert.ok(outage.steadyMs >= 2_000 && outage.steadyMs <= 2_250);
});
