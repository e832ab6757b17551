import type { JsonObject } from "../../agent/api/response-events.ts";
import { errorMessage } from "../../base/error-message.ts";
import { toPlainNumbers } from "../../base/lossless-json.ts";
import { InputError } from "../job.ts";

/** Returns the schema violations of a result, or an empty list if it is valid. */
export type ResultCheck = (result: JsonObject) => string[];

/** Compiles a schema. The validator is loaded only for jobs with a schema. */
export async function compileResultCheck(schema: JsonObject | null): Promise<ResultCheck> {
  if (schema === null) return () => [];
  const { default: ajv } = schema.$schema?.toString().includes("2020-12")
    ? await import("ajv/dist/2020.js")
    : await import("ajv");
  const { default: formats } = await import("ajv-formats");
  // Schemas for models contain keywords outside of JSON Schema, and unknown formats cannot be checked. Both are
  // ignored.
  const validator = new ajv.default({ allErrors: true, strict: false, logger: false });
  formats.default(validator);
  let validate: ReturnType<typeof validator.compile>;
  try {
    validate = validator.compile(schema);
  } catch (error) {
    throw new InputError(`the schema cannot be used: ${errorMessage(error)}`, { cause: error });
  }
  return (result) =>
    validate(toPlainNumbers(result))
      ? []
      : (validate.errors ?? []).map((error) => `result${error.instancePath} ${error.message ?? "is not valid"}`);
}
