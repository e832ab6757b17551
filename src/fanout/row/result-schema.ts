import type { JsonObject } from "../../agent/api/response-events.ts";
import { omitUndefined } from "../../base/omit-undefined.ts";
import { isObject } from "../../base/type-guards.ts";
import { InputError } from "../job.ts";

/** Keywords that occur only in a JSON Schema. */
const SCHEMA_KEYWORDS = [
  ...["$ref", "$defs", "properties", "required", "additionalProperties", "patternProperties", "items", "enum"],
  ...["const", "anyOf", "oneOf", "allOf", "not", "if"],
];

/**
 * Returns the schema, with or without the wrapper of provider APIs: `{name, strict, schema}`, alone or as the
 * `json_schema` of a response format. Throws if a wrapper contains no schema, because it would accept every result.
 */
export function unwrapSchema(given: JsonObject): JsonObject {
  if (SCHEMA_KEYWORDS.some((keyword) => Object.hasOwn(given, keyword))) return given;
  if (isObject(given.json_schema)) return unwrapSchema(given.json_schema);
  if (isObject(given.schema)) return unwrapSchema(given.schema);
  if (given.type === "json_schema" || ("name" in given && ("strict" in given || "parameters" in given))) {
    throw new InputError(
      `the schema is a wrapper without a schema in it; expected a JSON Schema, or {"name": …, "schema": {…}}`,
    );
  }
  return given;
}

/** Returns the parameters of the report tool. They contain the result schema as far as model servers support it. */
export function reportParameters(schema: JsonObject | null): { parameters: JsonObject; strict: boolean } {
  const strict = schema && strictSchema(schema);
  const isSupported = strict !== null || (schema?.type === "object" && hasLocalReferencesOnly(schema));
  const { $defs, definitions, $schema: _schema, $id: _id, ...shape } = strict ?? schema ?? {};
  const result = isSupported ? shape : { type: "object", description: "The result, in the shape the task asks for." };
  const parameters = {
    type: "object",
    properties: { ...IDS, result, stop: { ...STOP, type: strict ? ["boolean", "null"] : "boolean" } },
    required: ["job_id", "item_id", "result", ...(strict ? ["stop"] : [])],
    additionalProperties: false,
    // References resolve from the root, so definitions are there.
    ...(isSupported ? omitUndefined({ $defs, definitions }) : {}),
  };
  return { parameters, strict: strict !== null };
}

const IDS = {
  job_id: { type: "string", description: "The job id from your message." },
  item_id: { type: "string", description: "The item id from your message." },
};
const STOP = { description: "True to end the whole job early. Rarely right." };

const LOCAL_REFERENCE = /^#\/(\$defs|definitions)\//;

function hasLocalReferencesOnly(schema: unknown): boolean {
  if (Array.isArray(schema)) return schema.every(hasLocalReferencesOnly);
  if (!isObject(schema)) return true;
  if (typeof schema.$ref === "string" && !LOCAL_REFERENCE.test(schema.$ref)) return false;
  return Object.values(schema).every(hasLocalReferencesOnly);
}

/** Keywords that strict servers support. */
const SUPPORTED_KEYWORDS = new Set([
  ...["type", "enum", "const", "description", "title", "$ref", "pattern", "minimum", "maximum"],
  ...["exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"],
]);
/** Keywords that strict servers reject. They only restrict the result, and `ResultCheck` enforces them. */
const CHECKED_KEYWORDS = new Set([
  ...["minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "default", "examples"],
  ...["$schema", "$id", "$comment", "format", "readOnly", "writeOnly", "deprecated"],
]);
const STRICT_FORMATS = new Set(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]);

/** Returns a schema that strict servers accept and whose results have the same shape, or null if there is none. */
export function strictSchema(schema: JsonObject): JsonObject | null {
  if (schema.type !== "object" || schema.properties === undefined) return null;
  return strictPart(schema);
}

function strictPart(part: unknown): JsonObject | null {
  if (!isObject(part)) return null;
  const out: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(part)) {
    const strict = strictKeyword(keyword, value);
    if (strict === null) return null;
    if (strict !== undefined) out[keyword] = strict;
  }
  if (part.type === "object" || part.properties !== undefined) {
    const names = Object.keys(isObject(part.properties) ? part.properties : {});
    const required: unknown[] = Array.isArray(part.required) ? part.required : [];
    if (part.properties === undefined || !names.every((name) => required.includes(name))) return null;
    if (required.length !== names.length || (part.additionalProperties ?? false) !== false) return null;
    out.required = names;
    out.additionalProperties = false;
  }
  return out;
}

/** Converts a keyword. Returns undefined to omit it, or null if the schema has no strict form. */
function strictKeyword(keyword: string, value: unknown): unknown {
  if (keyword === "properties" || keyword === "$defs" || keyword === "definitions") {
    return isObject(value) ? strictParts(value) : null;
  }
  if (keyword === "items") return strictPart(value);
  if (keyword === "anyOf") {
    const choices = Array.isArray(value) ? value.map(strictPart) : [null];
    return choices.includes(null) ? null : choices;
  }
  if (keyword === "required" || keyword === "additionalProperties") return undefined;
  if (keyword === "$ref") return typeof value === "string" && LOCAL_REFERENCE.test(value) ? value : null;
  if (keyword === "format" && typeof value === "string" && STRICT_FORMATS.has(value)) return value;
  if (SUPPORTED_KEYWORDS.has(keyword)) return value;
  return CHECKED_KEYWORDS.has(keyword) ? undefined : null;
}

function strictParts(parts: JsonObject): JsonObject | null {
  const out: Record<string, unknown> = {};
  for (const [name, part] of Object.entries(parts)) {
    const strict = strictPart(part);
    if (strict === null) return null;
    out[name] = strict;
  }
  return out;
}
