import assert from "node:assert/strict";
import { test } from "node:test";
import { FANOUT_HELP, RUN_HELP } from "../../../src/cli/options/fanout-help.ts";
import { RUN_FLAGS } from "../../../src/cli/options/fanout-options.ts";

test("the help of `fanout` lists every flag of commands that run rows", () => {
  const missing = Object.keys(RUN_FLAGS).filter((flag) => !`${FANOUT_HELP}${RUN_HELP}`.includes(`--${flag}`));
  assert.deepEqual(missing, ["heartbeat"], "only workers need --heartbeat");
});
