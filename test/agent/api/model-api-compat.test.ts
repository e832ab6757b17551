import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kindOfText, retryAfterFromText } from "../../../src/agent/api/model-api-compat.ts";

describe("the text of an error of a model API", () => {
  test("contains the delay of a rate limit in milliseconds, seconds or minutes", () => {
    const delays = [
      ["Please try again in 250ms.", 250],
      ["try again in 20 milliseconds", 20],
      ["Please try again in 1.5s. Visit", 1_500],
      ["Try again in 3 seconds", 3_000],
      ["try again in 2 minutes", 120_000],
      ["try again in 2m", 120_000],
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
});
