import assert from "node:assert/strict";
import { test } from "node:test";
import { openModelApi } from "../../../src/agent/agent-config.ts";
import { readBaseUrl } from "../../../src/agent/api/choose-dialect.ts";

test("the API dialect follows from the base URL, unless the user selects one", () => {
  for (const [url, kind, base] of [
    ["https://api.openai.com/v1", "responses", "https://api.openai.com/v1"],
    ["http://localhost:8000/v1/", "responses", "http://localhost:8000/v1"],
    ["http://localhost:8000/v1/chat/completions", "chat", "http://localhost:8000/v1"],
    ["http://localhost:11434/v1", "chat", "http://localhost:11434/v1"],
    ["https://openrouter.ai/api/v1", "chat", "https://openrouter.ai/api/v1"],
    ["https://api.anthropic.com", "anthropic", "https://api.anthropic.com/v1"],
    ["https://api.anthropic.com/v1/messages", "anthropic", "https://api.anthropic.com/v1"],
    ["https://x.example/openai/responses?api-version=2", "responses", "https://x.example/openai?api-version=2"],
  ] as const) {
    assert.deepEqual(readBaseUrl(url), { kind, baseUrl: base });
  }
  assert.deepEqual(readBaseUrl("https://api.openai.com/v1", "chat").kind, "chat");
  assert.deepEqual(readBaseUrl("http://localhost:9", "anthropic").baseUrl, "http://localhost:9/v1");
});

test("Anthropic never receives the key of another provider", () => {
  assert.throws(() => openModelApi({ OPENAI_API_KEY: "k" }, { kind: "anthropic" }), /ANTHROPIC_API_KEY is not set/);
  openModelApi({ ANTHROPIC_API_KEY: "k" }, { kind: "anthropic" }).close();
});
