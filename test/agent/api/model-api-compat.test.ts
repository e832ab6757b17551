import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  ANTHROPIC_REJECTION_PATTERNS,
  kindOfText,
  REJECTION_PATTERNS,
  retryAfterFromText,
} from "../../../src/agent/api/model-api-compat.ts";

describe("the text of an error of a model API", () => {
  test("contains the delay of a rate limit in milliseconds, seconds or minutes", () => {
    const delays = [
      ["Please try again in 250ms.", 250],
      ["try again in 20 milliseconds", 20],
      ["Please try again in 1.5s. Visit", 1_500],
      ["Try again in 3 seconds", 3_000],
      ["try again in 2 minutes", 120_000],
      ["try again in 2m", 120_000],
      ["try again in 0s", undefined],
      ["try again later", undefined],
      ["try again in 2 moons", undefined],
    ] as const;
    for (const [message, delayMs] of delays) assert.equal(retryAfterFromText(message), delayMs, message);
  });

  test("determines the kind of a bad request, but of no other status", () => {
    assert.equal(kindOfText(400, "This model's maximum context length is 4096 tokens"), "context_length");
    assert.equal(kindOfText(413, "Prompt is too long"), "context_length");
    assert.equal(kindOfText(400, "Your credit balance is too low"), "quota");
    assert.equal(kindOfText(400, "unknown field"), undefined);
    assert.equal(kindOfText(500, "prompt is too long"), undefined);
  });

  test("names the parameter that the API rejects", () => {
    const rejections = [
      ["Unrecognized request argument supplied: stream_options", ["stream_options"]],
      ["Use 'max_completion_tokens' instead.", ["max_tokens"]],
      ["Invalid type for 'tools[0].function.parameters'", ["strict"]],
      ["Encrypted content is not supported with this model", ["include"]],
      ["registry.ollama.ai/library/gemma does not support tools", ["tools"]],
      ["Unknown parameter: 'response_format'", ["response_format"]],
      ["the model is overloaded", []],
    ] as const;
    for (const [message, names] of rejections) {
      const found = Object.entries(REJECTION_PATTERNS).filter(([, pattern]) => pattern.test(message));
      assert.deepEqual(
        found.map(([name]) => name),
        names,
        message,
      );
    }
    assert.ok(ANTHROPIC_REJECTION_PATTERNS.tool_choice.test("Thinking may not be enabled when it forces tool use"));
    assert.ok(!REJECTION_PATTERNS.tool_choice.test("Thinking may not be enabled when it forces tool use"));
  });
});
