import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { chatReport, chatSays, reportArguments } from "../support/models/mock-chat.ts";
import { messagesCall } from "../support/models/mock-messages.ts";
import {
  type MockHandler,
  type MockResponses,
  report,
  says,
  startMockResponses,
} from "../support/models/mock-responses.ts";
import { runCli } from "../support/servers/run-cli.ts";

const COMMAND = ["fanout", "cats.csv", "--instruction", "about {name}", "--output", "out.csv"];

async function withTable(
  handler: MockHandler,
  check: (tools: { directory: string; mock: MockResponses; output(): Promise<string> }) => Promise<void>,
): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-wires-"));
  const mock = await startMockResponses(handler);
  try {
    await writeFile(path.join(directory, "cats.csv"), "name\nTom\nKit\n");
    await check({ directory, mock, output: () => readFile(path.join(directory, "out.csv"), "utf8") });
  } finally {
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

suite("procwire fanout with other API dialects", () => {
  test("a Chat Completions server answers a table, selected by --api or by its URL", async () => {
    await withTable(
      (request) => chatReport(request, { ok: request.item?.itemId }),
      async ({ directory, mock, output }) => {
        const named = await runCli([...COMMAND, "--api", "chat"], {
          cwd: directory,
          env: { OPENAI_BASE_URL: mock.url },
        });
        assert.equal(named.code, 0, named.stderr);
        assert.match(await output(), /""ok"":""row-2""/);
        const { code, stderr } = await runCli([...COMMAND, "--fresh"], {
          cwd: directory,
          env: { OPENAI_BASE_URL: `${mock.url}/chat/completions` },
        });
        assert.equal(code, 0, stderr);
        assert.deepEqual(new Set(mock.requests.map((request) => request.path)), new Set(["/v1/chat/completions"]));
      },
    );
  });

  test("a chat model without tool support answers in JSON, and requests after the first omit the tools", async () => {
    await withTable(
      (request) =>
        "tools" in request.body
          ? { type: "status", status: 400, body: { error: { message: "m does not support tools" } } }
          : chatSays(JSON.stringify(reportArguments(request, { ok: true }))),
      async ({ directory, mock, output }) => {
        const { code, stderr } = await runCli([...COMMAND, "--api", "chat", "--concurrency", "1"], {
          cwd: directory,
          env: { OPENAI_BASE_URL: mock.url },
        });
        assert.equal(code, 0, stderr);
        assert.equal(mock.requests.length, 3);
        assert.match(await output(), /""ok"":true/);
      },
    );
  });

  test("a server with the Anthropic dialect answers a table, with the key of Anthropic", async () => {
    await withTable(
      (request) => messagesCall("toolu_1", "report_agent_job_result", reportArguments(request, { ok: true })),
      async ({ directory, mock, output }) => {
        const { code, stderr } = await runCli([...COMMAND, "--api", "anthropic"], {
          cwd: directory,
          env: { ANTHROPIC_BASE_URL: new URL(mock.url).origin, ANTHROPIC_API_KEY: "a-key" },
        });
        assert.equal(code, 0, stderr);
        assert.match(await output(), /""ok"":true/);
        assert.equal(mock.requests[0]?.path, "/v1/messages");
        assert.equal(mock.requests[0]?.headers["x-api-key"], "a-key");
        assert.match(stderr, /2 of 2 rows completed; 30 tokens/);
      },
    );
  });

  test("request flags reach the API, and `jobs retry --model` calls another model", async () => {
    await withTable(
      (request) => (request.body.model === "other" ? report(request) : says("no")),
      async ({ directory, mock }) => {
        const env = { OPENAI_BASE_URL: mock.url };
        await writeFile(path.join(directory, "body.json"), '{"metadata":{"a":"b"}}');
        const first = await runCli(
          [
            ...[...COMMAND, "--max-attempts", "1", "--temperature", "0.5", "--max-output-tokens", "99"],
            ...["--extra-body", "@body.json", "--header", "X-Team: cats", "--service-tier", "flex"],
          ],
          { cwd: directory, env },
        );
        assert.equal(first.code, 1, first.stderr);
        const seen = mock.requests[0];
        assert.equal(seen?.body.temperature, 0.5);
        assert.equal(seen?.body.max_output_tokens, 99);
        assert.deepEqual(seen?.body.metadata, { a: "b" });
        assert.equal(seen?.body.service_tier, "flex");
        assert.equal(seen?.headers["x-team"], "cats");
        const id = /procwire jobs retry (\w+)/.exec(first.stderr)?.[1] ?? "";
        const retried = await runCli(["jobs", "retry", id, "--model", "other"], { cwd: directory, env });
        assert.equal(retried.code, 0, retried.stderr);
        assert.equal(mock.requests.at(-1)?.body.model, "other");
        assert.equal(mock.requests.at(-1)?.body.temperature, 0.5);
      },
    );
  });
});
