import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { until } from "../../support/system/until.ts";
import { connectHttp, startHttp } from "./http-mcp.ts";
import { type Message, RawHttpClient } from "./raw-http-client.ts";

/** Delivery of prompts to clients with MCP of 2025, and behavior after their stream closed. */

const ALLOW = { action: "accept", content: { decision: "allow once" } };
const asking = () => startHttp("--ask", "--ws-auth", "none");
const command = (cmd: string) => ({ name: "exec_command", arguments: { cmd, login: false } });
const textOf = ({ result }: Message): string => {
  const content = result?.content;
  assert.ok(Array.isArray(content));
  return String(content[0]?.text);
};

describe("approval prompts over HTTP", { timeout: 600_000, concurrency: 3 }, () => {
  test("a prompt is sent on the stream of its call, also to a client without another stream", async () => {
    await using server = await asking();
    const client = await RawHttpClient.connect(server.url);
    const call = await client.request("tools/call", command("echo allowed"));
    const { id } = await client.question(call);
    await client.reply(id, ALLOW);
    assert.match(textOf(await client.answer(call)), /\nallowed\n$/);
  });

  test("an unanswered prompt of one client blocks no other client", async () => {
    await using server = await asking();
    const silent = await RawHttpClient.connect(server.url);
    const unanswered = await silent.request("tools/call", command("echo one"));
    const open = await silent.question(unanswered);
    const prompt = await RawHttpClient.connect(server.url);
    const call = await prompt.request("tools/call", command("echo two"));
    await prompt.reply((await prompt.question(call)).id, ALLOW);
    assert.match(textOf(await prompt.answer(call)), /\ntwo\n$/);
    await silent.reply(open.id, ALLOW);
    assert.match(textOf(await silent.answer(unanswered)), /\none\n$/);
  });

  test("a prompt whose stream closes counts as rejected, and the next prompt is sent", async () => {
    await using server = await asking();
    const client = await RawHttpClient.connect(server.url);
    const lost = new AbortController();
    const call = await client.request("tools/call", command("echo never"), lost.signal);
    await client.question(call);
    lost.abort();
    const next = await client.request("tools/call", command("echo next"));
    await client.reply((await client.question(next)).id, ALLOW);
    assert.match(textOf(await client.answer(next)), /\nnext\n$/);
    const listed = await client.request("tools/call", { name: "list_sessions", arguments: {} });
    assert.doesNotMatch(textOf(await client.answer(listed)), /never/);
  });

  test("a task's prompt is sent to the request that waits for its result, and again if that stream is lost", async () => {
    await using server = await asking();
    const client = await RawHttpClient.connect(server.url);
    const params = { ...command("echo allowed"), task: {} };
    const created = await client.answer(await client.request("tools/call", params));
    const { taskId } = Object(created.result?.task) as { taskId: string };
    const status = async () => (await client.answer(await client.request("tasks/get", { taskId }))).result?.status;
    await until("the task asks", async () => (await status()) === "input_required");
    const cut = new AbortController();
    const first = await client.request("tasks/result", { taskId }, cut.signal);
    const question = await client.question(first);
    assert.deepEqual(question.params?._meta, { "io.modelcontextprotocol/related-task": { taskId } });
    cut.abort();
    const second = await client.request("tasks/result", { taskId });
    await client.reply((await client.question(second)).id, ALLOW);
    assert.match(textOf(await client.answer(second)), /\nallowed\n$/);
    assert.equal(await status(), "completed");
  });

  test("a task's prompt is sent only to the MCP session that started the task", async () => {
    await using server = await asking();
    const owner = await RawHttpClient.connect(server.url);
    const other = await RawHttpClient.connect(server.url);
    const params = { ...command("echo allowed"), task: {} };
    const created = await owner.answer(await owner.request("tools/call", params));
    const { taskId } = Object(created.result?.task) as { taskId: string };
    const results = {
      other: await other.request("tasks/result", { taskId }),
      owner: await owner.request("tasks/result", { taskId }),
    };
    const otherAnswer = other.next(results.other, () => true);
    const question = owner.question(results.owner);
    const receiver = await Promise.race([question.then(() => "owner"), otherAnswer.then(() => "other")]);
    assert.equal(receiver, "owner");
    const { id } = await question;
    await other.reply(id, ALLOW);
    await owner.reply(id, { action: "decline" });
    const refused = "exec_command refused: the user rejected it";
    assert.equal(textOf(await owner.answer(results.owner)), refused);
    const { method, ...answer } = await otherAnswer;
    assert.equal(method, undefined, "the other session got the prompt");
    assert.equal(textOf(answer), refused);
  });

  test("an answer from another MCP session does not count", async () => {
    await using server = await asking();
    const owner = await RawHttpClient.connect(server.url);
    const other = await RawHttpClient.connect(server.url);
    const call = await owner.request("tools/call", command("echo allowed"));
    const { id } = await owner.question(call);
    await other.reply(id, ALLOW);
    await owner.reply(id, { action: "decline" });
    assert.equal(textOf(await owner.answer(call)), "exec_command refused: the user rejected it");
  });

  test("a remembered approval covers only the MCP session that gave it", async () => {
    await using server = await asking();
    const owner = await RawHttpClient.connect(server.url);
    const first = await owner.request("tools/call", command("echo allowed"));
    const remembered = { action: "accept", content: { decision: "allow for session" } };
    await owner.reply((await owner.question(first)).id, remembered);
    assert.match(textOf(await owner.answer(first)), /\nallowed\n$/);
    const again = await owner.request("tools/call", command("echo allowed"));
    assert.match(textOf(await owner.answer(again)), /\nallowed\n$/);
    const other = await RawHttpClient.connect(server.url);
    const otherCall = await other.request("tools/call", command("echo allowed"));
    const { method } = await other.next(otherCall, () => true);
    assert.equal(method, "elicitation/create");
  });

  test("each change of a task's status is sent on the notification stream", async () => {
    await using server = await asking();
    const client = await RawHttpClient.connect(server.url);
    const statusStream = await client.listen();
    const params = { ...command("echo allowed"), task: {} };
    const created = await client.answer(await client.request("tools/call", params));
    const { taskId } = Object(created.result?.task) as { taskId: string };
    const isStatus = ({ method }: Message) => method === "notifications/tasks/status";
    const prompted = await client.next(statusStream, isStatus);
    assert.deepEqual([prompted.params?.taskId, prompted.params?.status], [taskId, "input_required"]);
    const result = await client.request("tasks/result", { taskId });
    await client.reply((await client.question(result)).id, ALLOW);
    const after = [
      (await client.next(statusStream, isStatus)).params,
      (await client.next(statusStream, isStatus)).params,
    ];
    assert.deepEqual(
      after.map((params) => params?.status),
      ["working", "completed"],
    );
    const { ttl, createdAt, lastUpdatedAt, pollInterval } = Object(after[1]) as Record<string, unknown>;
    for (const member of [ttl, pollInterval]) assert.equal(typeof member, "number");
    for (const member of [createdAt, lastUpdatedAt]) assert.ok(Date.parse(String(member)) > 0);
    await statusStream.return();
  });

  test("the official client receives every prompt during its call, from the first call on", async () => {
    await using server = await asking();
    for (let round = 0; round < 20; round++) {
      const client = await connectHttp(server.url, undefined, {
        capabilities: { elicitation: { form: {} } },
      });
      client.setRequestHandler("elicitation/create", () => ({ action: "decline" as const }));
      const { content } = await client.callTool(command("echo no"));
      assert.ok(content[0]?.type === "text");
      assert.equal(content[0].text, "exec_command refused: the user rejected it");
      await client.close();
    }
  });
});
