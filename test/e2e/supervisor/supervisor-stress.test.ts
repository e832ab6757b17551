import assert from "node:assert/strict";
import { test } from "node:test";
import { lastBytes, show } from "../../../scripts/test/supervisor-stress.ts";
import { NO_KEEPER } from "../../support/servers/supervised-server.ts";

const OPTIONS = { timeout: 180_000, skip: NO_KEEPER };

test(
  "kills and handovers at random moments lose no process, line, write or handle without a report",
  OPTIONS,
  async (t) => {
    const { unservedMs, gapsTold, writes, lines, ...losses } = await show({
      processes: 26,
      kills: 3,
      handovers: 3,
      clients: 3,
    });
    t.diagnostic(JSON.stringify({ unservedMs: unservedMs.map(Math.round), gapsTold, writes, lines }));
    assert.deepEqual(losses, {
      processesLost: 0,
      linesLostUntold: 0,
      writesLostOrDoubled: 0,
      handlesFailed: 0,
      wrongExits: 0,
    });
    assert.ok(writes > 0 && lines > 0);
  },
);

test(
  "a server that is killed while a process writes its last bytes: its exit code is right",
  OPTIONS,
  async () => {
    assert.equal(await lastBytes(12), 0);
  },
);
