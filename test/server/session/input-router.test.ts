import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { InputRouter, type RoutedProcess } from "../../../src/server/session/input-router.ts";

const INPUT = {};

function setup({ isAudited = false, ...overrides }: Partial<RoutedProcess> & { isAudited?: boolean } = {}) {
  const routed = new Map<string, object>();
  const connection = {
    route: (processId: string, input: object) => void routed.set(processId, input),
    unroute: (processId: string) => void routed.delete(processId),
    setPaused: () => undefined,
  };
  const router = new InputRouter({ isAudited });
  router.setConnection(connection);
  const process = {
    terminalQueries: undefined,
    recordsInput: false,
    isShared: false,
    process: { directInput: INPUT },
    ...overrides,
  };
  router.add("p", process);
  return { router, connection, process, isDirect: () => routed.get("p") === INPUT };
}

describe("InputRouter", () => {
  test("enables direct input for a process that meets all conditions", () => {
    assert.equal(setup().isDirect(), true);
  });

  const ordered: Record<string, Parameters<typeof setup>[0]> = {
    "the server has an audit log": { isAudited: true },
    "terminal queries are claimed": { terminalQueries: "claimed" },
    "input is recorded": { recordsInput: true },
    "the process is shared": { isShared: true },
    "the process has no direct input": { process: { directInput: null } },
  };
  for (const [condition, options] of Object.entries(ordered)) {
    test(`keeps input ordered if ${condition}`, () => {
      assert.equal(setup(options).isDirect(), false);
    });
  }

  test("disables direct input while an ordered call is pending", async () => {
    const { router, isDirect } = setup();
    const call = Promise.withResolvers<void>();
    const done = router.runInOrder("p", () => call.promise);
    assert.equal(isDirect(), false);
    router.update("p");
    assert.equal(isDirect(), false, "a pending call is a condition");
    call.resolve();
    await done;
    assert.equal(isDirect(), true);
  });

  test("disables direct input while the process is shared", () => {
    const { router, process, isDirect } = setup();
    process.isShared = true;
    router.update("p");
    assert.equal(isDirect(), false);
    process.isShared = false;
    router.update("p");
    assert.equal(isDirect(), true, "the last viewer left");
  });

  test("disables direct input of a removed process and of a lost connection", () => {
    const { router, connection, isDirect } = setup();
    router.setConnection(null);
    assert.equal(isDirect(), false);
    router.setConnection(connection);
    assert.equal(isDirect(), true);
    router.remove("p");
    assert.equal(isDirect(), false);
    router.setConnection(connection);
    assert.equal(isDirect(), false, "the id no longer names a process");
  });
});
