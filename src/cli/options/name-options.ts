import { processLabels, processName } from "../../protocol/process-labels.ts";
import { DecodeError, type Schema } from "../../protocol/schema.ts";
import type { HelpRow } from "../help/help-page.ts";
import { UsageError } from "../usage-error.ts";

/** Options that identify a process. */
export const NAME_OPTIONS = { name: { type: "string" }, label: { type: "string", multiple: true } } as const;

export const NAME_ROWS: readonly HelpRow[] = [
  ["--name NAME", "name of the process, unique among your live processes"],
  ["--label KEY=VALUE", "label of the process, for `ps --filter`; repeatable"],
];

/** Parses name and labels. `--label KEY` sets an empty value, and the last value of a key wins. */
export function parseNameOptions({ name, label }: { name?: string | undefined; label?: string[] | undefined }): {
  name: string | undefined;
  labels: Record<string, string> | undefined;
} {
  const labels = label && Object.fromEntries(label.map(splitLabel));
  return {
    name: name === undefined ? undefined : decode("--name", processName, name),
    labels: labels && decode("--label", processLabels, labels),
  };
}

function splitLabel(text: string): [key: string, value: string] {
  const at = text.indexOf("=");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decode<T>(flag: string, schema: Schema<T>, value: T): T {
  try {
    return schema.decode(value);
  } catch (error) {
    throw error instanceof DecodeError ? new UsageError(`${flag}: ${error.message}`) : error;
  }
}
