import assert from "node:assert/strict";
import { test } from "node:test";
import { lastBytes, stress } from "../../../scripts/test/supervisor-stress.ts";
import { NO_SUPERVISOR } from "../../support/servers/supervised-server.ts";

const OPTIONS = { timeout: 600_000, skip: NO_SUPERVISOR };

test(
  "kills, handoffs and upgrades at random moments lose no process, line, write or handle without a report",
  OPTIONS,
  async (t) => {
    const { unservedMs, gapsReported, writes, lines, ...losses } = await stress({
      processes: 26,
      kills: 2,
      handoffs: 2,
      upgrades: 2,
      clients: 3,
    });
    t.diagnostic(JSON.stringify({ unservedMs: unservedMs.map(Math.round), gapsReported, writes, lines }));
    assert.deepEqual(losses, {
      processesLost: 0,
      linesLostSilently: 0,
      writesLostOrDoubled: 0,
      handlesFailed: 0,
      wrongExits: 0,
    });
    assert.ok(writes > 0 && lines > 0);
  },
);

test("a process whose server is killed while it writes its last bytes has the right exit code", OPTIONS, async () => {
  assert.equal(await lastBytes(12), 0);
});
