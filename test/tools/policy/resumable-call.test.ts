import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, test } from "node:test";
import type { ApprovalAnswer, ApprovalRequest } from "../../../src/tools/policy/approval.ts";
import { ResumableCall } from "../../../src/tools/policy/resumable-call.ts";
import type { ToolCallContext, ToolOutput } from "../../../src/tools/tool.ts";

const request = (cmd: string): ApprovalRequest => ({
  kind: "unsandboxed",
  cmd,
  argv: ["/bin/sh", "-c", cmd],
  shell: "system",
  tty: false,
  commands: [[cmd]],
  workdir: "/w",
  sandbox: "none",
  sandboxWritable: false,
});

const output = (text: string): ToolOutput => ({ text, ok: true });

/** A tool that asks about each command in order and returns all answers. */
const asks =
  (...cmds: string[]) =>
  async ({ askCaller }: ToolCallContext): Promise<ToolOutput> => {
    const answers = [];
    for (const cmd of cmds) answers.push((await askCaller?.(request(cmd)))?.type);
    return output(answers.join());
  };

const open = () => new AbortController();

describe("ResumableCall", () => {
  test("withdraws a prompt whose signal aborts, and ignores its late answer", async () => {
    const withdrawn = new AbortController();
    const answers: ApprovalAnswer[] = [];
    const call = new ResumableCall(async ({ askCaller }) => {
      for (const [cmd, signal] of [["one", withdrawn.signal] as const, ["two", undefined] as const])
        answers.push((await askCaller?.(request(cmd), signal)) ?? assert.fail());
      return { ok: true, text: "done" };
    });
    const first = await call.next(new AbortController().signal);
    assert.ok(first.type === "asks" && first.signal === withdrawn.signal);
    withdrawn.abort();
    const second = await call.next(new AbortController().signal);
    assert.ok(second.type === "asks" && second.request.cmd === "two");
    call.answer({ type: "allow" }, first.request);
    call.answer({ type: "refuse", reason: "no" }, second.request);
    assert.equal((await call.next(new AbortController().signal)).type, "ended");
    assert.deepEqual(answers, [
      { type: "refuse", reason: "the prompt was withdrawn" },
      { type: "refuse", reason: "no" },
    ]);
  });

  test("ends with the output of a call that asks nothing", async () => {
    const call = new ResumableCall(asks());
    assert.deepEqual(await call.next(open().signal), { type: "ended", output: output("") });
  });

  test("stops at each approval request and continues with its answer", async () => {
    const call = new ResumableCall(asks("one", "two"));
    assert.deepEqual(await call.next(open().signal), { type: "asks", request: request("one"), signal: undefined });
    assert.deepEqual(
      await call.next(open().signal),
      { type: "asks", request: request("one"), signal: undefined },
      "not answered",
    );
    call.answer({ type: "allow" });
    assert.deepEqual(await call.next(open().signal), { type: "asks", request: request("two"), signal: undefined });
    call.answer({ type: "refuse", reason: "no" });
    assert.deepEqual(await call.next(open().signal), { type: "ended", output: output("allow,refuse") });
  });

  test("rejects the pending approval and aborts the call when the signal aborts", async () => {
    for (const isEarly of [true, false]) {
      const aborted: boolean[] = [];
      const answers: unknown[] = [];
      const call = new ResumableCall(async ({ askCaller, signal }) => {
        answers.push(await askCaller?.(request("one")));
        aborted.push(signal?.aborted ?? false);
        return output("over");
      });
      await call.next(open().signal);
      const controller = open();
      if (isEarly) controller.abort();
      // The request is pending, so this returns it once more.
      const step = call.next(controller.signal);
      controller.abort();
      await step;
      assert.deepEqual(await call.next(open().signal), { type: "ended", output: output("over") });
      assert.deepEqual(answers, [{ type: "refuse", reason: "the call was cancelled" }]);
      assert.deepEqual(aborted, [true]);
    }
  });

  test("reports progress and watches the signal only during `next`", async () => {
    const messages: string[] = [];
    let report: (message: string) => void = () => undefined;
    const call = new ResumableCall(async ({ askCaller, onProgress }) => {
      report = (message) => onProgress?.(message);
      await askCaller?.(request("one"));
      report("during");
      return output("over");
    });
    const controller = open();
    await call.next(controller.signal, (message) => messages.push(message));
    report("between");
    assert.equal(getEventListeners(controller.signal, "abort").length, 0);
    call.answer({ type: "allow" });
    await call.next(controller.signal, (message) => messages.push(message));
    report("after");
    assert.deepEqual(messages, ["during"]);
  });

  test("shows parallel approval requests one after the other, so that each gets its own answer", async () => {
    const obsolete = open();
    const call = new ResumableCall(async ({ askCaller }) => {
      const answers = await Promise.all([
        askCaller?.(request("one")),
        askCaller?.(request("obsolete"), obsolete.signal),
        askCaller?.(request("two")),
      ]);
      return output(answers.map((answer) => answer?.type).join());
    });
    assert.deepEqual(await call.next(open().signal), { type: "asks", request: request("one"), signal: undefined });
    obsolete.abort();
    call.answer({ type: "refuse", reason: "no" });
    assert.deepEqual(await call.next(open().signal), { type: "asks", request: request("two"), signal: undefined });
    call.answer({ type: "allow" });
    assert.deepEqual(await call.next(open().signal), { type: "ended", output: output("refuse,refuse,allow") });
  });

  test("rejects `next` with the failure of the call, also if it failed before", async () => {
    const call = new ResumableCall(async () => {
      throw new Error("it failed");
    });
    await new Promise((resolve) => setImmediate(resolve));
    await assert.rejects(call.next(open().signal), /it failed/);
  });
});
