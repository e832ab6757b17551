import type { ProcessListing } from "../../exec/exec-process.ts";
import { UsageError } from "../usage-error.ts";

/** Conditions of `ps --filter`, as in `docker ps`. */
export interface ProcessFilter {
  matches(process: ProcessListing): boolean;
  /** Whether a condition asks for exited processes. */
  readonly wantsExited: boolean;
}

const STATES = ["running", "exited"] as const;

/** Test of one condition per key; the text is the part after the first `=`. */
const CONDITIONS: Readonly<Record<string, (process: ProcessListing, text: string) => boolean>> = {
  name: ({ name = "" }, text) => name.includes(text),
  label: ({ labels = {} }, text) => {
    const [key = "", ...value] = text.split("=");
    return Object.hasOwn(labels, key) && (value.length === 0 || labels[key] === value.join("="));
  },
  state: ({ running }, text) => (running ? "running" : "exited") === text,
  command: ({ argv }, text) => argv.join(" ").includes(text),
  owner: ({ principal }, text) => principal === text,
  lifetime: ({ lifetime }, text) => lifetime === text,
};

/**
 * Parses conditions `KEY=VALUE`. A process must satisfy all labels, and for each other key one of its values. `status`
 * is accepted for `state`, as in docker.
 */
export function parseProcessFilter(texts: readonly string[]): ProcessFilter {
  const conditions = texts.map((text) => {
    const at = text.indexOf("=");
    const typed = at < 0 ? text : text.slice(0, at);
    const key = typed === "status" ? "state" : typed;
    const value = text.slice(at + 1);
    const test = Object.hasOwn(CONDITIONS, key) ? CONDITIONS[key] : undefined;
    if (!test || at < 0 || value === "")
      throw new UsageError(
        `invalid --filter \`${text}\`; expected KEY=VALUE, where KEY is one of ${Object.keys(CONDITIONS).join(", ")}`,
      );
    if (key === "state" && !STATES.some((state) => state === value))
      throw new UsageError(`invalid --filter \`${text}\`; expected state=${STATES.join(" or state=")}`);
    return { key, value, test };
  });
  const labels = conditions.filter(({ key }) => key === "label");
  const others = Map.groupBy(
    conditions.filter(({ key }) => key !== "label"),
    ({ key }) => key,
  );
  return {
    matches: (process) =>
      labels.every(({ test, value }) => test(process, value)) &&
      [...others.values()].every((group) => group.some(({ test, value }) => test(process, value))),
    wantsExited: conditions.some(({ key, value }) => key === "state" && value === "exited"),
  };
}
