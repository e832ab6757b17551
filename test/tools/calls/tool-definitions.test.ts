import assert from "node:assert/strict";
import { test } from "node:test";
import ajv from "ajv";
import fc from "fast-check";
import { toolDefinitions } from "../../../src/tools/calls/tool-definitions.ts";
import { parseArguments } from "../../../src/tools/calls/tool-schema.ts";

const execCommand = toolDefinitions.execCommand.parameters;
const writeStdin = toolDefinitions.writeStdin.parameters;

test("exec_command takes exactly the arguments of Codex", () => {
  assert.deepEqual(Object.keys(execCommand.properties).sort(), [
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
  assert.deepEqual(execCommand.required, ["cmd"]);
  assert.equal(execCommand.additionalProperties, false);
});

test("write_stdin takes exactly the arguments of Codex", () => {
  assert.deepEqual(Object.keys(writeStdin.properties).sort(), [
    "chars",
    "max_output_tokens",
    "session_id",
    "yield_time_ms",
  ]);
  assert.deepEqual(writeStdin.required, ["session_id"]);
  assert.equal(writeStdin.properties.session_id.type, "number");
  assert.equal(writeStdin.additionalProperties, false);
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
  const parsed = parseArguments(execCommand, { cmd: "ls", workdir: null });
  assert.deepEqual(parsed, { type: "parsed", value: { cmd: "ls" } });
  assert.equal(parseArguments(execCommand, { cmd: null }).type, "invalid");
  assert.equal(parseArguments(execCommand, undefined).type, "invalid");
});

test("an error names the invalid argument and the expected value", () => {
  const message = (args: unknown) => {
    const parsed = parseArguments(execCommand, args);
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
