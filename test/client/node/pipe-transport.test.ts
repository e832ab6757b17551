import assert from "node:assert/strict";
import { test } from "node:test";
import { BRIDGE_READY_LINE } from "../../../src/client/node/connect-url.ts";
import { openPipeTransport } from "../../../src/client/node/pipe-transport.ts";
import { until } from "../../support/system/until.ts";

const count = (type: string) => process.getActiveResourcesInfo().filter((name) => name === type).length;

test("a pipe transport leaves no timer that delays the exit of the program after the command has exited", async () => {
  const timers = count("Timeout");
  const argv = ["/bin/sh", "-c", `echo '${BRIDGE_READY_LINE}'; cat`];
  const stream = await openPipeTransport({ url: "exec:sh", argv, timeoutMs: 60_000 });
  stream.destroy();
  await until("the command has exited", () => count("ProcessWrap") === 0);
  assert.equal(count("Timeout"), timers);
});
