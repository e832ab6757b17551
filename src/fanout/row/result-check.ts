import type { JsonObject } from "../../agent/api/response-events.ts";
import { messageOf } from "../../base/error-message.ts";
import { roundedJson } from "../../base/lossless-json.ts";
import { InputError } from "../job.ts";

/** Says what is wrong with a result, one line a fault; empty when it fits. */
export type ResultCheck = (result: JsonObject) => string[];

/** The validator is loaded only for jobs that have a schema. */
export async function compileResultCheck(schema: JsonObject | null): Promise<ResultCheck> {
  if (schema === null) return () => [];
  const { default: ajv } = schema.$schema?.toString().includes("2020-12")
    ? await import("ajv/dist/2020.js")
    : await import("ajv");
  const { default: formats } = await import("ajv-formats");
  // Schemas for models use keywords outside of JSON Schema, and an unknown format cannot be checked: both are ignored.
  const validator = new ajv.default({ allErrors: true, strict: false, logger: false });
  formats.default(validator);
  let validate: ReturnType<typeof validator.compile>;
  try {
    validate = validator.compile(schema);
  } catch (error) {
    throw new InputError(`the schema cannot be used: ${messageOf(error)}`, { cause: error });
  }
  return (result) =>
    validate(roundedJson(result))
      ? []
      : (validate.errors ?? []).map(
          (error) => `result${error.instancePath} ${error.message ?? "is not valid"}`,
        );
}
