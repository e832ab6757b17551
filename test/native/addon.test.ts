import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AcceptedSocket } from "../../src/connection/accepted-socket.ts";
import { MAX_QUEUED_INPUT_BYTES, MAX_WRITE_IDS } from "../../src/exec/backend/input-limits.ts";
import type { Child, ChildEvents } from "../../src/local/child.ts";
import {
  NativeAddon,
  type NativeEventListener,
  type NativeSocket,
  type NativeSpawnResult,
} from "../../src/native/addon.ts";
import { nativeSpawn } from "../../src/native/native-process.ts";
import { nativeListener } from "../../src/native/native-sockets.ts";
import { until } from "../support/system/until.ts";
import { addon, endSession, NO_ADDON, startChild } from "./started.ts";

/** Replaces functions of the addon, which never emits invalid events otherwise. */
const replaced = (functions: Partial<NativeAddon>): NativeAddon => ({ ...addon(), ...functions });

describe("the addon", { skip: NO_ADDON }, () => {
  test("exports exactly what its type declares", () => {
    assert.deepEqual(Object.keys(addon()).sort(), Object.keys(new NativeAddon()).sort());
    const values = [
      "childEvents",
      "socketEvents",
      "processEntryFields",
      "segmentEntries",
      "supervisorMessages",
    ];
    for (const [name, member] of Object.entries(addon()))
      assert.equal(typeof member, values.includes(name) ? "object" : "function", name);
    assert.deepEqual(addon().supervisorMessages, { ready: 8, heartbeat: 9 });
  });

  test("uses the same input limits as the TypeScript code", async () => {
    const started = await startChild(["sleep", "100"], { pipeStdin: true });
    const { input } = started.child;
    for (let id = 0; id <= MAX_WRITE_IDS; id++) input.write(Buffer.alloc(0), `w${id}`);
    assert.ok(!input.hasWriteId("w0"), "the oldest of one too many is forgotten");
    assert.ok(input.hasWriteId("w1") && input.hasWriteId(`w${MAX_WRITE_IDS}`));
    input.write(Buffer.alloc(MAX_QUEUED_INPUT_BYTES));
    assert.ok(input.queuedBytes > 0);
    endSession(started);
    await started.close;
  });
});

describe("an event of the addon with an invalid shape", { skip: NO_ADDON }, () => {
  const wrong: [string, Parameters<NativeEventListener>][] = [
    ["a number without a name", [99]],
    ["output without bytes", [0, "text"]],
    ["an exit without its numbers", [3, 1]],
  ];
  for (const [what, event] of wrong) {
    test(`fails the child that it is about: ${what}`, async () => {
      const told: string[] = [];
      const events: ChildEvents = {
        output: () => told.push("output"),
        exit: () => told.push("exit"),
        close: () => told.push("close"),
        drain: () => told.push("drain"),
        failed: (error) => told.push(error.message),
      };
      let tell: NativeEventListener | undefined;
      const native = replaced({
        spawn: (options) => {
          tell = options.onEvent;
          return addon().spawn(options);
        },
      });
      const child = await nativeSpawn(native)(sleeper, events);
      tell?.(...event);
      assert.equal(told.length, 1);
      assert.match(told[0] ?? "", /^unknown child event of the native addon: /);
      child.signalGroup(9);
      await until("the child has closed", () => told.includes("close"));
    });
  }

  test("fails a start whose answer is of the wrong shape", async () => {
    let real: ((result: NativeSpawnResult) => void) | undefined;
    let started: Child | undefined;
    const native = replaced({
      spawn: (options) => {
        real = options.onDone;
        const wrongDone = (result: NativeSpawnResult) =>
          Reflect.apply(options.onDone, null, [{ ...result, child: undefined }]);
        return addon().spawn({ ...options, onDone: wrongDone });
      },
    });
    const events: ChildEvents = {
      output: () => undefined,
      exit: () => undefined,
      close: () => undefined,
      drain: () => undefined,
      failed: () => undefined,
    };
    await assert.rejects(
      nativeSpawn(native)({ ...sleeper, argv: ["sleep", "0"] }, events).then((child) => {
        started = child;
      }),
      /unknown start event of the native addon: done/,
    );
    assert.ok(real && !started);
  });

  const wrongOnSockets: [string, Parameters<NativeEventListener>][] = [
    ["a number without a name", [99]],
    ["a message without bytes", [1, "text"]],
    ["a write without its chunk", [3, 1, "p", undefined]],
    ["an end of unknown kind", [6]],
  ];
  for (const [what, event] of wrongOnSockets) {
    test(`closes the connection that it is about and says why: ${what}`, async () => {
      let tell: NativeEventListener | undefined;
      let accept: ((socket: NativeSocket, peerName: string, peerUid: number) => void) | undefined;
      const destroyed: object[] = [];
      const handle = Object.create(null);
      const native = replaced({
        listenAt: (_host, _port, _backlog, onConnection) => {
          accept = onConnection;
          return [Object.create(null), 1];
        },
        startSocket: (_socket, onEvent) => {
          tell = onEvent;
        },
        upgradeToFrames: () => undefined,
        destroySocket: (socket) => destroyed.push(socket),
      });
      const accepted = Promise.withResolvers<AcceptedSocket>();
      await nativeListener(native)({ host: "127.0.0.1", port: 0 }, accepted.resolve);
      accept?.(handle, "peer", -1);
      const socket = await accepted.promise;
      const told: (string | null)[] = [];
      socket.start({ bytes: () => undefined, end: () => told.push("end") });
      const unexpected = () => told.push("something else");
      socket.upgrade({ maxMessageBytes: 1024, maxQueuedBytes: 1 << 20, received: Buffer.alloc(0) }).open({
        bytes: unexpected,
        text: unexpected,
        message: unexpected,
        decoded: unexpected,
        drain: unexpected,
        end: unexpected,
        close: (problem) => told.push(problem),
      });
      tell?.(...event);
      assert.equal(told.length, 1);
      assert.match(told[0] ?? "", /^unknown socket event of the native addon: /);
      assert.deepEqual(destroyed, [handle]);
      await socket.closed;
    });
  }
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
