import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Child } from "../../src/local/child.ts";
import { NO_ADDON, startChild } from "./started.ts";

/** As long as the protocol allows, so that few of them fill what a process may have. */
const ID_BYTES = 1024;
const OF_ONE = (256 * 1024) / ID_BYTES;
const OF_ALL = (32 * 1024 * 1024) / ID_BYTES;
const FEW = (16 * 1024) / ID_BYTES;

const idOf = (at: number) => String(at).padStart(ID_BYTES, "0");
const NOTHING = new Uint8Array();

describe("write ids of all processes", { skip: NO_ADDON }, () => {
  test("have a total limit, above which a process keeps only its newest ids", async () => {
    const started: Child[] = [];
    try {
      const start = async () => {
        const { child } = await startChild(["sleep", "1000"], { pipeStdin: true });
        started.push(child);
        for (let at = 0; at < OF_ONE; at++) child.input.write(NOTHING, idOf(at));
        return child.input;
      };
      const first = await start();
      assert.ok(first.hasWriteId(idOf(0)), "one alone keeps all it may");
      for (let count = 1; count < OF_ALL / OF_ONE; count++) await start();
      assert.ok(first.hasWriteId(idOf(0)), "all of them have as much as there may be");
      const last = await start();
      assert.ok(last.hasWriteId(idOf(OF_ONE - 1)) && last.hasWriteId(idOf(OF_ONE - FEW)));
      assert.ok(!last.hasWriteId(idOf(OF_ONE - FEW - 1)), "one more has few");
      first.write(NOTHING, "one more");
      assert.ok(first.hasWriteId("one more") && first.hasWriteId(idOf(OF_ONE - 1)));
    } finally {
      for (const child of started) child.signalGroup(9);
    }
  });
});
