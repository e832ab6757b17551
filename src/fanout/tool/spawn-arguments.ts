import type { JsonObject } from "../../agent/api/response-events.ts";
import { isObject } from "../../base/type-guards.ts";

/** The arguments of `spawn_agents_on_csv`. */
export interface SpawnArguments {
  csvPath: string;
  instruction: string;
  idColumn: string | null;
  outputCsvPath: string | null;
  maxConcurrency: number | null;
  maxRuntimeSeconds: number | null;
  outputSchema: JsonObject | null;
}

export const SPAWN_PARAMETERS = {
  type: "object",
  properties: {
    csv_path: {
      type: "string",
      description: "The table, relative to the working directory. CSV, TSV or JSON lines.",
    },
    instruction: {
      type: "string",
      description: "What to do with each row. {column} is replaced by the row's value; write {{ and }} for braces.",
    },
    id_column: { type: "string", description: "A column whose values name the items; default: row numbers." },
    output_csv_path: { type: "string", description: "Where the results go; default: beside the input." },
    max_concurrency: { type: "integer", description: "Rows at a time; default 16." },
    max_workers: { type: "integer", description: "The same as max_concurrency." },
    max_runtime_seconds: { type: "integer", description: "How long one row may take; default 1800." },
    output_schema: { type: "object", description: "A JSON Schema that every result has to fit." },
  },
  required: ["csv_path", "instruction"],
  additionalProperties: false,
} as const;

/**
 * Parses the arguments. Returns a string with the error if they are invalid. Unknown arguments are ignored, because
 * models add them.
 */
export function parseSpawnArguments(args: unknown): SpawnArguments | string {
  if (!isObject(args)) return "failed to parse function arguments: expected an object";
  for (const name of ["csv_path", "instruction"]) {
    if (typeof args[name] !== "string") return `failed to parse function arguments: ${name} must be a string`;
  }
  for (const name of ["id_column", "output_csv_path"]) {
    if (isGiven(args[name]) && typeof args[name] !== "string") {
      return `failed to parse function arguments: ${name} must be a string`;
    }
  }
  for (const name of ["max_concurrency", "max_workers", "max_runtime_seconds"]) {
    const value = args[name];
    if (isGiven(value) && !(typeof value === "number" && Number.isSafeInteger(value) && value >= 0)) {
      return `failed to parse function arguments: ${name} must be a whole number`;
    }
  }
  if (isGiven(args.output_schema) && !isObject(args.output_schema)) {
    return "failed to parse function arguments: output_schema must be an object";
  }
  if (args.max_runtime_seconds === 0) return "max_runtime_seconds must be at least 1";
  return {
    csvPath: text(args.csv_path) ?? "",
    instruction: text(args.instruction) ?? "",
    idColumn: text(args.id_column),
    outputCsvPath: text(args.output_csv_path),
    maxConcurrency: number(args.max_concurrency) ?? number(args.max_workers),
    maxRuntimeSeconds: number(args.max_runtime_seconds),
    outputSchema: isObject(args.output_schema) ? args.output_schema : null,
  };
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function number(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
