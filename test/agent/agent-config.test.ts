import assert from "node:assert/strict";
import { test } from "node:test";
import { openModelApi, parseOverrides } from "../../src/agent/agent-config.ts";

test("an override is a TOML value, or a string if it is not valid TOML", async () => {
  const config = await parseOverrides([
    "features.enable_fanout=true",
    "agents.max_threads=64",
    "model=gpt-5-mini",
    'openai_base_url="http://127.0.0.1:1/v1"',
  ]);
  assert.equal(config.boolean("features.enable_fanout"), true);
  assert.equal(config.count("agents.max_threads"), 64);
  assert.equal(config.string("model"), "gpt-5-mini");
  assert.equal(config.string("openai_base_url"), "http://127.0.0.1:1/v1");
  assert.equal(config.string("missing"), undefined);
  assert.deepEqual(config.unknownKeys(), []);
});

test("the last of two overrides wins, and unknown keys are reported", async () => {
  const config = await parseOverrides(["a=1", "a=2", "agnets.max_threads=3"]);
  assert.equal(config.count("a"), 2);
  assert.deepEqual(config.unknownKeys(), ["agnets.max_threads"]);
});

test("an invalid override is rejected with the expected value", async () => {
  await assert.rejects(parseOverrides(["nonsense"]), {
    name: "ConfigError",
    message: "invalid -c override `nonsense`; expected `key=value`",
  });
  const config = await parseOverrides(["n=0", "f=maybe", "t=fish"]);
  assert.throws(() => config.count("n"), /invalid value `0` for n; expected a whole number of at least 1/);
  assert.throws(() => config.boolean("f"), /invalid value `maybe` for f; expected true or false/);
  assert.throws(() => config.oneOf("t", ["none", "exec"]), /invalid value `fish` for t; expected none or exec/);
});

test("the public API requires a key, another server does not, and an invalid URL is rejected", () => {
  assert.throws(() => openModelApi({}), /OPENAI_API_KEY is not set/);
  openModelApi({ OPENAI_BASE_URL: "http://127.0.0.1:9/v1" }).close();
  assert.throws(() => openModelApi({ OPENAI_BASE_URL: "localhost:8080" }), /invalid API base URL `localhost:8080`/);
});
