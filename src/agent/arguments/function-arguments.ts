import { parseLosslessJson } from "../../base/lossless-json.ts";
import {
  formatPosition,
  JsonSyntaxError,
  type PositionedMember,
  type PositionedValue,
  parsePositionedJson,
} from "./positioned-json.ts";

export type ParsedToolArguments = { type: "read"; value: unknown } | { type: "mistaken"; message: string };

/**
 * Parses the arguments of a tool call. For the two tools that models know from Codex, errors have Codex's wording and
 * position, and unknown fields are ignored. Other tools validate their arguments themselves.
 */
export function parseToolArguments(tool: string, text: string): ParsedToolArguments {
  const fields = FIELDS.get(tool);
  if (!fields && text.trim() === "") return { type: "read", value: {} };
  try {
    const read = parsePositionedJson(text);
    if (fields) checkFields(read, fields);
    // The Codex tools take small numbers. Other tools get numbers without loss of precision.
    return { type: "read", value: fields ? pickKnown(JSON.parse(text), fields) : parseLosslessJson(text) };
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    const message = `failed to parse function arguments: ${error.message} at ${formatPosition(text, error.at)}`;
    return { type: "mistaken", message };
  }
}

type Kind = "string" | "boolean" | "u64" | "usize" | "i32" | "strings" | "permissions";

interface Field {
  kind: Kind;
  required?: true;
  /** Whether null is invalid; otherwise null means absent. */
  notNull?: true;
}

type Fields = ReadonlyMap<string, Field>;

const FIELDS: ReadonlyMap<string, Fields> = new Map([
  [
    "exec_command",
    new Map<string, Field>([
      ["cmd", { kind: "string", required: true, notNull: true }],
      ["workdir", { kind: "string" }],
      ["shell", { kind: "string" }],
      ["login", { kind: "boolean" }],
      ["tty", { kind: "boolean", notNull: true }],
      ["yield_time_ms", { kind: "u64", notNull: true }],
      ["max_output_tokens", { kind: "usize" }],
      ["sandbox_permissions", { kind: "permissions" }],
      ["justification", { kind: "string" }],
      ["prefix_rule", { kind: "strings" }],
    ]),
  ],
  [
    "write_stdin",
    new Map<string, Field>([
      ["session_id", { kind: "i32", required: true, notNull: true }],
      ["chars", { kind: "string" }],
      ["yield_time_ms", { kind: "u64", notNull: true }],
      ["max_output_tokens", { kind: "usize" }],
    ]),
  ],
]);

const PERMISSIONS = ["use_default", "require_escalated"];

type NamedKind = Exclude<Kind, "permissions"> | "map";

/** Name and range of each kind in error messages. */
const EXPECTED: Record<NamedKind, string> = {
  string: "a string",
  boolean: "a boolean",
  u64: "u64",
  usize: "usize",
  i32: "i32",
  strings: "a sequence",
  map: "a map",
};
const RANGES: Record<"u64" | "usize" | "i32", [bigint, bigint]> = {
  u64: [0n, 2n ** 64n - 1n],
  usize: [0n, 2n ** 64n - 1n],
  i32: [-(2n ** 31n), 2n ** 31n - 1n],
};

function checkFields(read: PositionedValue, fields: Fields): void {
  if (read.type !== "map") throw typeError(read, "map");
  const seen = new Set<string>();
  for (const member of read.members) checkMember(member, fields, seen);
  for (const [name, field] of fields) {
    if (field.required && !seen.has(name)) throw new JsonSyntaxError(`missing field \`${name}\``, read.end);
  }
}

function checkMember({ name, nameEnd, value }: PositionedMember, fields: Fields, seen: Set<string>): void {
  const field = fields.get(name);
  if (!field) return;
  if (seen.has(name)) throw new JsonSyntaxError(`duplicate field \`${name}\``, nameEnd);
  seen.add(name);
  if (value.type === "null" && !field.notNull) return;
  checkKind(value, field.kind);
}

function checkKind(value: PositionedValue, kind: Kind): void {
  switch (kind) {
    case "string":
    case "boolean":
      if (value.type !== kind) throw typeError(value, kind);
      return;
    case "u64":
    case "usize":
    case "i32": {
      if (value.type !== "integer") throw typeError(value, kind);
      const [least, most] = RANGES[kind];
      const number = BigInt(value.text);
      if (number < least || number > most)
        throw new JsonSyntaxError(`invalid value: integer \`${value.text}\`, expected ${EXPECTED[kind]}`, value.end);
      return;
    }
    case "strings":
      if (value.type !== "sequence") throw typeError(value, kind);
      for (const item of value.items) checkKind(item, "string");
      return;
    case "permissions":
      if (value.type !== "string") throw new JsonSyntaxError("expected value", value.start + 1);
      if (!PERMISSIONS.includes(value.value))
        throw new JsonSyntaxError(
          `unknown variant \`${value.value}\`, expected one of ${PERMISSIONS.map((one) => `\`${one}\``).join(", ")}`,
          value.end,
        );
  }
}

/** Returns a type error. Its position is the start of a list or map, and the end of any other value. */
function typeError(value: PositionedValue, expected: NamedKind): JsonSyntaxError {
  const isNested = value.type === "sequence" || value.type === "map";
  return new JsonSyntaxError(
    `invalid type: ${describeValue(value, expected)}, expected ${EXPECTED[expected]}`,
    isNested ? value.start : value.end,
  );
}

function describeValue(value: PositionedValue, expected: NamedKind): string {
  switch (value.type) {
    case "string":
      return `string ${JSON.stringify(value.value)}`;
    case "integer":
      return `integer \`${value.text}\``;
    case "float":
      return expected === "string" ? "number" : `floating point \`${value.text}\``;
    case "boolean":
      return `boolean \`${value.value}\``;
    case "null":
    case "sequence":
    case "map":
      return value.type;
  }
}

function pickKnown(value: unknown, fields: Fields): unknown {
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => fields.has(name)));
}
