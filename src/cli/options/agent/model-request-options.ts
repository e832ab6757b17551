import { readFileSync } from "node:fs";
import type { RequestOptions } from "../../../agent/api/model-api.ts";
import type { JsonObject } from "../../../agent/api/response-events.ts";
import { errorMessage } from "../../../base/error-message.ts";
import { isObject } from "../../../base/type-guards.ts";
import { UsageError } from "../../command.ts";
import { parseAmount, parseCount } from "../parse-number.ts";

/** Request flags that change the answers, so they are part of the job. */
export const REQUEST_FLAGS = {
  temperature: { type: "string" },
  "max-output-tokens": { type: "string" },
  "extra-body": { type: "string" },
  "image-column": { type: "string", multiple: true },
  votes: { type: "string" },
} as const;

/** Returns undefined without these flags, so that the job has the same key as before they existed. */
export function parseRequestOptions(values: {
  temperature?: string | undefined;
  "max-output-tokens"?: string | undefined;
  "extra-body"?: string | undefined;
}): RequestOptions | undefined {
  const body = values["extra-body"];
  const options = {
    temperature: values.temperature === undefined ? undefined : parseTemperature(values.temperature),
    maxOutputTokens: parseCount("max-output-tokens", values["max-output-tokens"]),
    extraBody: body === undefined ? undefined : parseExtraBody(body),
  };
  return Object.values(options).some((value) => value !== undefined) ? options : undefined;
}

/** Parses headers of the form `Name: value`. */
export function parseHeaders(lines: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^([!#$%&'*+.^_`|~\w-]+):[ \t]*([^\r\n]*)$/.exec(line) ?? [];
      if (name === undefined || value === undefined) {
        throw new UsageError("invalid --header; expected `Name: value`");
      }
      return [name.toLowerCase(), value.trim()];
    }),
  );
}

function parseTemperature(text: string): number {
  const value = parseAmount(text);
  if (value !== null && value <= 2) return value;
  throw new UsageError(`invalid --temperature \`${text}\`; expected a number from 0 to 2`);
}

function parseExtraBody(text: string): JsonObject {
  const json = text.startsWith("@") ? readFileSync(text.slice(1), "utf8") : text;
  let body: unknown;
  try {
    body = JSON.parse(json);
  } catch (error) {
    throw new UsageError(`invalid --extra-body: ${errorMessage(error)}; expected a JSON object`);
  }
  if (!isObject(body)) throw new UsageError("invalid --extra-body; expected a JSON object");
  return body;
}
