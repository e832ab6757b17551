import assert from "node:assert/strict";
import { test } from "node:test";
import ajv from "ajv";
import fc from "fast-check";
import {
  execCommandSchema,
  toolDefinitions,
  writeStdinSchema,
} from "../../../src/tools/calls/tool-definitions.ts";
import { parseArguments } from "../../../src/tools/calls/tool-schema.ts";

test("exec_command takes exactly the arguments models know", () => {
  assert.deepEqual(Object.keys(execCommandSchema.properties).sort(), [
    "cmd",
    "justification",
    "login",
    "max_output_tokens",
    "prefix_rule",
    "sandbox_permissions",
    "shell",
    "tty",
    "workdir",
    "yield_time_ms",
  ]);
  assert.deepEqual(execCommandSchema.required, ["cmd"]);
  assert.equal(execCommandSchema.additionalProperties, false);
});

test("write_stdin takes exactly the arguments models know", () => {
  assert.deepEqual(Object.keys(writeStdinSchema.properties).sort(), [
    "chars",
    "max_output_tokens",
    "session_id",
    "yield_time_ms",
  ]);
  assert.deepEqual(writeStdinSchema.required, ["session_id"]);
  assert.equal(writeStdinSchema.properties.session_id.type, "number");
  assert.equal(writeStdinSchema.additionalProperties, false);
});

test("every definition is a valid JSON Schema", () => {
  const validator = new ajv.Ajv({ strict: true });
  for (const { parameters } of Object.values(toolDefinitions)) validator.compile(parameters);
});

test("arguments are accepted exactly when the JSON Schema accepts them", () => {
  const value = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.boolean(),
    fc.array(fc.oneof(fc.string(), fc.integer()), { maxLength: 3 }),
    fc.constantFrom("use_default", "require_escalated", "exit", "port"),
    fc.object({ maxDepth: 0 }),
  );
  const validator = new ajv.Ajv();
  for (const { parameters } of Object.values(toolDefinitions)) {
    const accepts = validator.compile(parameters);
    const names = [...Object.keys(parameters.properties), "stray"];
    const args = fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 4, noNullPrototype: true });
    fc.assert(
      fc.property(args, (given) => {
        const parsed = parseArguments(parameters, given);
        assert.equal(parsed.type === "parsed", accepts(given), JSON.stringify([given, parsed]));
        if (parsed.type === "parsed") assert.deepEqual(parsed.value, given);
      }),
    );
  }
});

test("a null argument counts as absent", () => {
  const parsed = parseArguments(execCommandSchema, { cmd: "ls", workdir: null });
  assert.deepEqual(parsed, { type: "parsed", value: { cmd: "ls" } });
  assert.equal(parseArguments(execCommandSchema, { cmd: null }).type, "invalid");
  assert.equal(parseArguments(execCommandSchema, undefined).type, "invalid");
});

test("an error names the invalid argument and the expected value", () => {
  const message = (args: unknown) => {
    const parsed = parseArguments(execCommandSchema, args);
    return parsed.type === "invalid" ? parsed.message : null;
  };
  assert.equal(message({}), "missing argument `cmd`");
  assert.equal(message({ cmd: "ls", cwd: "/" }), "unknown argument `cwd`");
  assert.equal(message({ cmd: ["ls"] }), "argument `cmd` must be a string");
  assert.equal(message([]), "arguments must be an object");
  assert.equal(
    message({ cmd: "ls", sandbox_permissions: "all" }),
    "argument `sandbox_permissions` must be one of `use_default`, `require_escalated`",
  );
});
