import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, test } from "node:test";
import { asObject } from "../../src/base/json-fields.ts";
import type { AcceptedSocket } from "../../src/connection/accepted-socket.ts";
import { MAX_QUEUED_INPUT_BYTES, MAX_WRITE_IDS } from "../../src/exec/backend/input-limits.ts";
import { PERSISTENT_RETAINED_BYTES } from "../../src/exec/backend/persistent-process.ts";
import type { ChildEvents } from "../../src/local/child.ts";
import { procFsTable } from "../../src/local/tree/process-table.ts";
import {
  NativeAddon,
  type NativeSocket,
  type NativeSocketEvent,
  type NativeSpawnOptions,
} from "../../src/native/addon.ts";
import { nativeSpawn } from "../../src/native/native-process.ts";
import { nativeListener } from "../../src/native/native-sockets.ts";
import { until } from "../support/system/until.ts";
import { addon, endSession, NO_ADDON, startChild } from "./started.ts";

/** Replaces functions of the addon, which never emits invalid events otherwise. */
const replaced = (functions: Partial<NativeAddon>): NativeAddon => ({ ...addon(), ...functions });

describe("the addon", { skip: NO_ADDON }, () => {
  test("exports exactly the names that its type declares", () => {
    assert.deepEqual(Object.keys(addon()).sort(), Object.keys(new NativeAddon()).sort());
    const values = [
      "linkBit",
      "listedKinds",
      "processEntryFields",
      "resourceLimits",
      "segmentEntries",
      "segmentLayout",
      "supervisorMessages",
      "tokenKinds",
      "transferLine",
      "treeFailures",
    ];
    for (const [name, member] of Object.entries(addon()))
      assert.equal(typeof member === "function", !values.includes(name), name);
  });

  test("returns null, and no number of a special meaning, for absent values", async () => {
    const native = addon();
    const own = procFsTable.entry(process.pid);
    assert.ok(own);
    assert.equal(native.tagOf(process.ppid), null);
    assert.equal(native.signal(process.pid, own.startTime, 0), null);
    assert.equal(native.signal(process.pid, own.startTime + 1, 0), constants.errno.ESRCH);
    assert.equal(native.connectSocket("a name", 1), null);
    assert.equal(native.connectSocket("/missing", null), constants.errno.ENOENT);
    assert.equal(native.connectDatagram("/missing"), constants.errno.ENOENT);
    const listened = native.listenAt("127.0.0.1", 0, 1, () => undefined, null);
    assert.ok(Array.isArray(listened) && Number(listened[1]) > 0);
    native.closeListener(listened[0]);
    const scanned = await new Promise((resolve) => native.scanMessage(Buffer.from("[]"), 10, 10, resolve));
    assert.equal(asObject(scanned).problem, null);
    const listing = await new Promise((resolve) => native.listDirectory(Buffer.from("/proc/self/fd"), 10, resolve));
    assert.equal(asObject(listing).errno, null);
  });

  test("uses the same input limits as the TypeScript code", async () => {
    const started = await startChild(["sleep", "100"], { pipeStdin: true });
    const { input } = started.child;
    for (let id = 0; id <= MAX_WRITE_IDS; id++) input.write(Buffer.alloc(0), `w${id}`);
    assert.ok(!input.hasWriteId("w0"), "the oldest id is evicted above the limit");
    assert.ok(input.hasWriteId("w1") && input.hasWriteId(`w${MAX_WRITE_IDS}`));
    input.write(Buffer.alloc(MAX_QUEUED_INPUT_BYTES));
    assert.ok(input.queuedBytes > 0);
    endSession(started);
    await started.close;
  });
});

describe("the state segment", { skip: NO_ADDON }, () => {
  test("holds twice the retained output and one read, reads of a quarter of the retention, and all write ids", () => {
    const { outputBytes, readBytes, writeIds } = addon().segmentLayout;
    assert.ok(outputBytes > 2 * PERSISTENT_RETAINED_BYTES + readBytes);
    assert.ok(4 * readBytes <= PERSISTENT_RETAINED_BYTES);
    assert.equal(writeIds, MAX_WRITE_IDS);
  });
});

describe("an unknown event of the addon", { skip: NO_ADDON }, () => {
  const unknown: { type: "drain" } = JSON.parse('{ "type": "unknown" }');

  test("fails its child", async () => {
    const calls: string[] = [];
    const events: ChildEvents = {
      output: () => calls.push("output"),
      exit: () => calls.push("exit"),
      close: () => calls.push("close"),
      drain: () => calls.push("drain"),
      failed: (error) => calls.push(error.message),
    };
    let emit: NativeSpawnOptions["onEvent"] | undefined;
    const native = replaced({
      spawn: (options) => {
        emit = options.onEvent;
        return addon().spawn(options);
      },
    });
    const child = await nativeSpawn(native)(sleeper, events);
    emit?.(unknown);
    assert.deepEqual(calls, ["unknown child event of the native addon: unknown"]);
    child.signalGroup(9);
    await until("the child has closed", () => calls.includes("close"));
  });

  test("closes its connection with the reason", async () => {
    let emit: ((event: NativeSocketEvent) => void) | undefined;
    let accept: ((socket: NativeSocket, peerName: string, peerUid: number) => void) | undefined;
    const destroyed: object[] = [];
    const handle = Object.create(null);
    const native = replaced({
      listenAt: (_host, _port, _backlog, onConnection) => {
        accept = onConnection;
        return [Object.create(null), 1];
      },
      startSocket: (_socket, { onEvent }) => {
        emit = onEvent;
      },
      upgradeToFrames: () => undefined,
      destroySocket: (socket) => destroyed.push(socket),
    });
    const accepted = Promise.withResolvers<AcceptedSocket>();
    await nativeListener(native)({ host: "127.0.0.1", port: 0 }, accepted.resolve);
    accept?.(handle, "peer", -1);
    const socket = await accepted.promise;
    const calls: (string | null)[] = [];
    socket.start({ bytes: () => undefined, end: () => calls.push("end") });
    const unexpected = () => calls.push("unexpected");
    socket.upgrade({ maxMessageBytes: 1024, maxQueuedBytes: 1 << 20, received: Buffer.alloc(0) }).open({
      bytes: unexpected,
      text: unexpected,
      message: unexpected,
      decoded: unexpected,
      drain: unexpected,
      end: unexpected,
      close: (problem) => calls.push(problem),
    });
    emit?.(unknown);
    assert.deepEqual(calls, ["unknown socket event of the native addon: unknown"]);
    assert.deepEqual(destroyed, [handle]);
    await socket.closed;
  });
});

const sleeper = {
  file: "sleep",
  argv: ["sleep", "100"],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin" },
  terminal: null,
  pipeStdin: true,
  descriptors: [],
};
