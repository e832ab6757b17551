import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { NetworkAnswer } from "../../../src/protocol/network/network-schemas.ts";
import { AuditLog } from "../../../src/server/audit/audit-log.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { OpenQuestions } from "../../../src/server/network/open-questions.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { policy } from "../../support/network/network-config.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { fakeSessions } from "../../support/servers/fake-sessions.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";

const request = { protocol: "https_connect", host: "x.test", port: 443 } as const;
const question = { ...request, reason: "no rule allows this host", canRemember: false };
const networkProxy = { proxy: policy({}), policyDecisionTimeoutMs: 1000 };

/** A server with a process whose client waits for the answer of the test. */
async function setUp({ hasConsole = true } = {}) {
  const scratch = scratchDirectory();
  const file = join(scratch.path, "audit.jsonl");
  const host = new FakeHost();
  const audit = new AuditLog(file, { clock: new ManualClock() });
  const server = new ExecServer({ ...host, audit });
  if (hasConsole) server.setConsole({ socketPath: null, newLogin: () => ({ fragment: "", validMs: 0 }) });
  const answers: ((decision: NetworkAnswer) => void)[] = [];
  const connect = async () => {
    const connection = server.connectInProcess({
      onNotification: () => undefined,
      onDisconnect: () => undefined,
      onRequest: () => new Promise((resolve) => answers.push((decision) => resolve({ decision }))),
    });
    await connection.call("initialize", { clientName: "x", extensions: ["started"] });
    connection.initialized();
    return connection;
  };
  const asking = await connect();
  const params = { processId: "p", argv: ["fetch", "x"], cwd: "file:///tmp", env: {}, tty: false, networkProxy };
  const { handle = "" } = await asking.call("process/start", params);
  const { decideNetwork } = host.process("p").params;
  assert.ok(decideNetwork);
  // The response to the start is queued.
  await new Promise((resolve) => setImmediate(resolve));
  const decide = async () => {
    const decided = decideNetwork(request, new AbortController().signal);
    await new Promise((resolve) => setImmediate(resolve));
    return decided;
  };
  const lines = () => {
    audit.close();
    const text = readFileSync(file, "utf8").trimEnd();
    return text.split("\n").map((line): Record<string, unknown> => JSON.parse(line));
  };
  return {
    asking,
    console: await connect(),
    decide,
    answers,
    handle,
    lines,
    [Symbol.dispose]: () => scratch[Symbol.dispose](),
  };
}

describe("a network question", () => {
  test("is listed with its command and target, and the first answer wins", async () => {
    using server = await setUp();
    const { asking, console, decide, answers, handle, lines } = server;
    const decided = decide();
    await flushEventLoop();
    const asked = asking.call("network/ask", { processId: "p", ...question });
    await flushEventLoop();
    const { questions } = await console.call("network/questions", {});
    assert.deepEqual(
      questions.map(({ askedAtMs, ...shown }) => shown),
      [{ questionId: "1", handle, principal: "local", argv: ["fetch", "x"], ...question }],
    );
    await assert.rejects(console.call("network/answer", { questionId: "1", answer: "always" }), /has no rules file/);
    const given = await console.call("network/answer", { questionId: "1", answer: "session" });
    assert.deepEqual(given, { accepted: true, host: "x.test", port: 443 });
    assert.deepEqual(await asked, { answer: "session" });
    assert.deepEqual(await console.call("network/answer", { questionId: "1", answer: "deny" }), { accepted: false });
    assert.deepEqual(await console.call("network/questions", {}), { questions: [] });
    answers[0]?.({ type: "allow" });
    assert.deepEqual(await decided, { type: "allow" });
    const audited = lines().filter(({ event }) => event === "process/question" || event === "network/answer");
    assert.deepEqual(
      audited.map(({ event, outcome, target, answer, reason }) => ({ event, outcome, target, answer, reason })),
      [
        {
          event: "network/answer",
          outcome: "refused",
          target: undefined,
          answer: "always",
          reason: audited[0]?.reason,
        },
        {
          event: "process/question",
          outcome: "allowed",
          target: "x.test:443",
          answer: undefined,
          reason: "session by local",
        },
        { event: "network/answer", outcome: "allowed", target: "x.test:443", answer: "session", reason: undefined },
        {
          event: "network/answer",
          outcome: "refused",
          target: undefined,
          answer: "deny",
          reason: "unknown question, or answered before",
        },
      ],
    );
  });

  test("ends with the response of the client, and the audit log has the outcome", async () => {
    using server = await setUp();
    const { asking, console, decide, answers, lines } = server;
    const decided = decide();
    await flushEventLoop();
    const asked = asking.call("network/ask", { processId: "p", ...question });
    await flushEventLoop();
    answers[0]?.({ type: "deny", reason: "rejected by user" });
    await decided;
    assert.deepEqual(await asked, { answer: undefined });
    assert.deepEqual(await console.call("network/questions", {}), { questions: [] });
    const line = lines().find(({ event }) => event === "process/question");
    assert.deepEqual([line?.outcome, line?.reason], ["refused", "denied by the client: rejected by user"]);
  });

  test("is rejected without a waiting request, for a foreign process, and without a console", async () => {
    using server = await setUp();
    const ask = (connection: typeof server.asking, processId = "p") =>
      connection.call("network/ask", { processId, ...question });
    await assert.rejects(ask(server.asking), /process p has no request to x\.test:443 that waits/);
    await server.console.call("process/attach", { handle: server.handle, role: "driver", processId: "a" });
    await assert.rejects(ask(server.console, "a"), /was not started by this session/);
    using other = await setUp({ hasConsole: false });
    void other.decide();
    await flushEventLoop();
    await assert.rejects(ask(other.asking), /no web console/);
  });

  test("is visible to its principal and to operators alone", async () => {
    const { open, shared } = fakeSessions();
    const session = open({ peer: {} as never, extensions: new Set(), clientName: "x" });
    await session.start({ processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false });
    const process = await shared(session);
    const questions = new OpenQuestions(() => 0);
    const { promise, resolve } = Promise.withResolvers<NetworkAnswer>();
    const decided = questions.during(process, request, () => promise);
    void questions.ask(process, { processId: "p", ...question });
    const principal = (id: string, role: "user" | "operator" = "user") => ({ id, role });
    assert.equal(questions.list(principal("local")).length, 1);
    assert.equal(questions.list(principal("ops", "operator")).length, 1);
    assert.deepEqual(questions.list(principal("jwt:other")), []);
    assert.equal(questions.answer(principal("jwt:other"), "1", "once"), null);
    resolve({ type: "allow" });
    await decided;
    assert.deepEqual(questions.list(principal("local")), []);
  });
});
