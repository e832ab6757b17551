import { errorMessage } from "../../base/error-message.ts";
import { isObject } from "../../base/type-guards.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { Schema } from "../../protocol/schema.ts";
import { findNearestName } from "./nearest-name.ts";

/** A rejected value: its path below the checked value, and the cause. */
export interface OptionProblem {
  readonly path: readonly string[];
  describe(path: string): string;
  /** Whether the description is a whole message, as a server sends it. */
  readonly isWhole?: boolean;
}

/** Validates one option. */
export interface OptionKind {
  /** Accepted form, for the error message: `a string`. */
  readonly form: string;
  /** Returns the first problem, or null for a valid value. */
  findProblem(value: unknown): OptionProblem | null;
  readonly isRequired?: boolean;
}

export interface RequiredKind extends OptionKind {
  readonly isRequired: true;
}

/** One kind per option of `T`. The compiler rejects a missing name, an extra name and a required option without `required`. */
export type OptionFields<T> = {
  readonly [K in keyof T]-?: Record<never, never> extends Pick<T, K> ? OptionKind : RequiredKind;
};

/** Throws an `EINVAL` error unless `options` has the fields of the schema. `operation` starts the message. */
export function checkOptions(operation: string, options: unknown, schema: OptionKind, name = "options"): void {
  const problem = schema.findProblem(options);
  if (problem === null) return;
  throw toError(operation, problem, problem.path.length === 0 ? [name] : problem.path);
}

/** Throws an `EINVAL` error unless the argument `name` has this kind. */
export function checkArgument(operation: string, name: string, value: unknown, kind: OptionKind): void {
  const problem = kind.findProblem(value);
  if (problem === null) return;
  throw toError(operation, problem, [name, ...problem.path]);
}

function toError(operation: string, problem: OptionProblem, path: readonly string[]): ExecServerError {
  const description = problem.describe(path.join("."));
  return new ExecServerError(problem.isWhole ? description : `${operation}: ${description}`, "EINVAL");
}

// ---- kinds

/** A value that `accepts` approves. `describe` formats a rejected value. */
export function kind(form: string, accepts: (value: unknown) => boolean, describe = describeValue): OptionKind {
  const reject = (value: unknown): OptionProblem => ({
    path: [],
    describe: (path) =>
      value === undefined
        ? `missing \`${path}\`; expected ${form}`
        : `invalid \`${path}\`: got ${describe(value)}, expected ${form}`,
  });
  return { form, findProblem: (value) => (accepts(value) ? null : reject(value)) };
}

export const anyValue = kind("any value", () => true);
export const text = kind("a string", (value) => typeof value === "string");
export const texts = listOf(text, "an array of strings");
export const nonEmptyText = kind("a non-empty string", (value) => typeof value === "string" && value !== "");
/** A string whose value stays out of error messages. */
export const secretText = kind("a string", (value) => typeof value === "string", describeType);
/** A secret, or a function that returns the current one. */
export const secretSource = kind(
  "a string or a function",
  (value) => typeof value === "string" || typeof value === "function",
  describeType,
);
export const flag = kind("true or false", (value) => typeof value === "boolean");
export const callback = kind("a function", (value) => typeof value === "function");
export const count = kind("a non-negative integer", (value) => Number.isSafeInteger(value) && Number(value) >= 0);
export const milliseconds = kind(
  "milliseconds as a non-negative integer",
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
);
/** A number of milliseconds that may be fractional or infinite. */
export const duration = kind(
  "milliseconds as a non-negative number",
  (value) => typeof value === "number" && value >= 0,
);
/** A number that may be fractional or infinite. */
export const amount = kind("a non-negative number", (value) => typeof value === "number" && value >= 0);
export const number = kind("a number", (value) => typeof value === "number" && !Number.isNaN(value));
export const smallCount = kind(
  "an integer from 0 to 65535",
  (value) => Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 0xffff,
);
export const anyObject = kind("an object", (value) => typeof value === "object" && value !== null);
export const abortSignal = kind(
  "an AbortSignal",
  (value) => isObject(value) && typeof value.aborted === "boolean" && typeof value.addEventListener === "function",
);

/** Returns a kind that accepts the same values and describes them more precisely. */
export function described(inner: OptionKind, form: string): OptionKind {
  return kind(form, (value) => inner.findProblem(value) === null);
}

/** A value of the kind that the wire schema also accepts. The error has the text that a server sends. */
export function decodedBy(inner: OptionKind, schema: Schema<unknown>): OptionKind {
  return {
    form: inner.form,
    findProblem: (value) => {
      const problem = inner.findProblem(value);
      if (problem !== null) return problem;
      try {
        schema.decode(value);
        return null;
      } catch (error) {
        return { path: [], describe: () => errorMessage(error), isWhole: true };
      }
    },
  };
}

export function oneOf(...values: readonly string[]): OptionKind {
  const form = values.map((value) => `"${value}"`).join(" or ");
  return kind(form, (value) => typeof value === "string" && values.includes(value));
}

/** A value that has one of the methods of an interface, such as a backend. */
export function objectWith(form: string, ...methods: readonly string[]): OptionKind {
  const has = (value: object, method: string) => typeof Reflect.get(value, method) === "function";
  return kind(
    form,
    (value) => typeof value === "object" && value !== null && methods.every((name) => has(value, name)),
  );
}

/** A value that one of the kinds accepts. The last kind describes problems inside of an object or an array. */
export function either(form: string, ...kinds: readonly OptionKind[]): OptionKind {
  const last = kinds.at(-1);
  const whole = kind(form, (value) => kinds.some((one) => one.findProblem(value) === null));
  return {
    form,
    findProblem: (value) => {
      const problem = whole.findProblem(value);
      const inner = problem === null ? null : (last?.findProblem(value) ?? null);
      return inner !== null && inner.path.length > 0 ? inner : problem;
    },
  };
}

export function listOf(item: OptionKind, form: string): OptionKind {
  return members(kind(form, Array.isArray), (value) => (Array.isArray(value) ? [...value.entries()] : null), item);
}

/** An object with any names. A member may be undefined. */
export function mapOf(item: OptionKind, form: string): OptionKind {
  const entries = (value: unknown) =>
    isObject(value) ? Object.entries(value).filter(([, member]) => member !== undefined) : null;
  return members(kind(form, isObject), entries, item);
}

/** Checks each member of a value. `entries` returns null for a value that is not of the whole kind. */
function members(
  whole: OptionKind,
  entries: (value: unknown) => [string | number, unknown][] | null,
  item: OptionKind,
): OptionKind {
  return {
    form: whole.form,
    findProblem: (value) => {
      const found = entries(value);
      if (found === null) return whole.findProblem(value);
      for (const [name, member] of found) {
        const problem = item.findProblem(member);
        if (problem !== null) return below(String(name), problem);
      }
      return null;
    },
  };
}

/** The same kind for each of these names. */
export function each<K extends OptionKind, N extends string>(kindOfEach: K, ...names: readonly N[]): Record<N, K> {
  // One entry per name.
  return Object.fromEntries(names.map((name) => [name, kindOfEach])) as Record<N, K>;
}

/** An object with exactly these options, listed on first use. An undefined option counts as absent. */
export function optionsOf<T>(fields: () => OptionFields<T>, form = "an object"): OptionKind {
  let kinds: Map<string, OptionKind> | undefined;
  let required: [string, OptionKind][] = [];
  return {
    form,
    findProblem: (value) => {
      if (!isObject(value)) return kind(form, isObject).findProblem(value);
      if (!kinds) {
        kinds = new Map(Object.entries(fields()));
        required = [...kinds].filter(([, { isRequired }]) => isRequired);
      }
      for (const name of Object.keys(value)) {
        const field = kinds.get(name);
        if (field === undefined) return unknownOption(name, [...kinds.keys()]);
        const problem = value[name] === undefined ? null : field.findProblem(value[name]);
        if (problem !== null) return below(name, problem);
      }
      for (const [name, field] of required)
        if (value[name] === undefined) return below(name, field.findProblem(undefined) ?? missing(field));
      return null;
    },
  };
}

/** An object with the options of `present` if it has a member `name`, otherwise with those of `absent`. */
export function optionsByMember(name: string, present: OptionKind, absent: OptionKind): OptionKind {
  const select = (value: unknown) => (isObject(value) && name in value ? present : absent);
  return { form: absent.form, findProblem: (value) => select(value).findProblem(value) };
}

/** An object whose `type` selects its options. */
export function variantsOf(variants: Readonly<Record<string, Readonly<Record<string, OptionKind>>>>): OptionKind {
  const type = required(oneOf(...Object.keys(variants)));
  const kinds = new Map(
    Object.entries(variants).map(([name, fields]) => [name, optionsOf(() => ({ type, ...fields }))]),
  );
  const form = `an object with type ${type.form}`;
  const whole = kind(form, isObject);
  return {
    form,
    findProblem: (value) => {
      if (!isObject(value)) return whole.findProblem(value);
      const selected = typeof value.type === "string" ? kinds.get(value.type) : undefined;
      if (selected) return selected.findProblem(value);
      const problem = type.findProblem(value.type);
      return problem && below("type", problem);
    },
  };
}

export function required(inner: OptionKind): RequiredKind {
  return { ...inner, isRequired: true };
}

export function nullOr(inner: OptionKind): OptionKind {
  return { form: `${inner.form} or null`, findProblem: (value) => (value === null ? null : inner.findProblem(value)) };
}

function missing({ form }: OptionKind): OptionProblem {
  return { path: [], describe: (path) => `missing \`${path}\`; expected ${form}` };
}

function unknownOption(name: string, known: readonly string[]): OptionProblem {
  const nearest = findNearestName(name, known);
  const remedy =
    nearest === null
      ? `expected one of ${known.map((one) => `\`${one}\``).join(", ")}`
      : `did you mean \`${nearest}\`?`;
  return { path: [name], describe: (path) => `unknown option \`${path}\`; ${remedy}` };
}

function below(name: string, problem: OptionProblem): OptionProblem {
  return { ...problem, path: [name, ...problem.path] };
}

// ---- values in error messages

/** Maximum characters of a value in an error message. */
const MAX_VALUE_CHARS = 40;

/** Describes a rejected value: short values as they are written, others by their type. */
export function describeValue(value: unknown): string {
  switch (typeof value) {
    case "string":
      return value.length > MAX_VALUE_CHARS
        ? `${JSON.stringify(value.slice(0, MAX_VALUE_CHARS))}…`
        : JSON.stringify(value);
    case "bigint":
      return `${value}n`;
    case "number":
    case "boolean":
    case "undefined":
      return String(value);
    default:
      return describeType(value);
  }
}

function describeType(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value !== "object") return `a ${typeof value}`;
  if (value instanceof URL) return "a URL object (pass its `href`)";
  const name: unknown = value.constructor?.name;
  return typeof name === "string" && name !== "" && name !== "Object" ? `an instance of ${name}` : "an object";
}
