import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Child } from "../../src/local/child.ts";
import { NO_ADDON, startChild } from "./started.ts";

/** Maximum length of the protocol, so that few ids reach the limit of a process. */
const ID_BYTES = 1024;
const IDS_PER_PROCESS = (256 * 1024) / ID_BYTES;
const MAX_TOTAL_IDS = (32 * 1024 * 1024) / ID_BYTES;
const REDUCED_IDS = (16 * 1024) / ID_BYTES;

const idOf = (at: number) => String(at).padStart(ID_BYTES, "0");
const NO_BYTES = new Uint8Array();

describe("write ids of all processes", { skip: NO_ADDON }, () => {
  test("have a total limit, above which a process keeps only its newest ids", async () => {
    const started: Child[] = [];
    try {
      const start = async () => {
        const { child } = await startChild(["sleep", "1000"], { pipeStdin: true });
        started.push(child);
        for (let at = 0; at < IDS_PER_PROCESS; at++) child.input.write(NO_BYTES, idOf(at));
        return child.input;
      };
      const first = await start();
      assert.ok(first.hasWriteId(idOf(0)), "a single process retains all its ids");
      for (let count = 1; count < MAX_TOTAL_IDS / IDS_PER_PROCESS; count++) await start();
      assert.ok(first.hasWriteId(idOf(0)), "the total is at its limit");
      const last = await start();
      assert.ok(last.hasWriteId(idOf(IDS_PER_PROCESS - 1)) && last.hasWriteId(idOf(IDS_PER_PROCESS - REDUCED_IDS)));
      assert.ok(
        !last.hasWriteId(idOf(IDS_PER_PROCESS - REDUCED_IDS - 1)),
        "a process above the total limit retains its newest ids",
      );
      first.write(NO_BYTES, "one more");
      assert.ok(first.hasWriteId("one more") && first.hasWriteId(idOf(IDS_PER_PROCESS - 1)));
    } finally {
      for (const child of started) child.signalGroup(9);
    }
  });
});
