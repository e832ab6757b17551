import type { JsonSchema } from "../tool.ts";

/** JSON Schema of one tool argument. Limited to the types that `parseArguments` validates. */
type PropertySchema = Readonly<
  { description: string } & (
    | { type: "string"; enum?: readonly string[] }
    | { type: "number"; minimum?: number; maximum?: number }
    | { type: "boolean" }
    | { type: "array"; items: { readonly type: "string" } }
  )
>;

/** JSON Schema of the arguments of a tool. Rejects unknown properties, so that misspelled arguments are reported. */
export type ArgumentsSchema = Readonly<{
  type: "object";
  properties: Readonly<Record<string, PropertySchema>>;
  required: readonly string[];
  additionalProperties: false;
}> &
  JsonSchema;

export function objectSchema<
  const P extends Readonly<Record<string, PropertySchema>>,
  const R extends readonly (keyof P & string)[],
>(properties: P, required: R) {
  return { type: "object", properties, required, additionalProperties: false } as const;
}

type ValueOf<P extends PropertySchema> = P extends { type: "string"; enum: readonly (infer E)[] }
  ? E
  : P extends { type: "string" }
    ? string
    : P extends { type: "number" }
      ? number
      : P extends { type: "boolean" }
        ? boolean
        : string[];

type Properties<S extends ArgumentsSchema> = S["properties"];
type Required<S extends ArgumentsSchema> = S["required"][number];

/** The argument type of a schema. */
export type ArgumentsOf<S extends ArgumentsSchema> = {
  [K in keyof Properties<S> & string as K extends Required<S> ? K : never]: ValueOf<Properties<S>[K]>;
} & {
  [K in keyof Properties<S> & string as K extends Required<S> ? never : K]?: ValueOf<Properties<S>[K]>;
};

export type Parsed<T> = { type: "parsed"; value: T } | { type: "invalid"; message: string };

/** Validates the arguments of a model. A null argument counts as absent. */
export function parseArguments<S extends ArgumentsSchema>(schema: S, value: unknown): Parsed<ArgumentsOf<S>> {
  const given = value ?? {};
  if (typeof given !== "object" || Array.isArray(given))
    return { type: "invalid", message: "arguments must be an object" };
  const present = Object.entries(given).filter(([, argument]) => argument !== null && argument !== undefined);
  for (const [name, argument] of present) {
    const property = schema.properties[name];
    if (!property) return { type: "invalid", message: `unknown argument \`${name}\`` };
    const expected = mismatch(property, argument);
    if (expected) return { type: "invalid", message: `argument \`${name}\` must be ${expected}` };
  }
  const parsed = Object.fromEntries(present);
  const missing = schema.required.find((name) => !Object.hasOwn(parsed, name));
  if (missing !== undefined) return { type: "invalid", message: `missing argument \`${missing}\`` };
  // The loop validated every property against the schema that the type is derived from.
  return { type: "parsed", value: parsed as ArgumentsOf<S> };
}

/** Returns a description of the expected value, or null if the argument is valid. */
function mismatch(property: PropertySchema, value: unknown): string | null {
  switch (property.type) {
    case "string": {
      if (typeof value !== "string") return "a string";
      const { enum: allowed } = property;
      if (!allowed || allowed.includes(value)) return null;
      return `one of ${allowed.map((value) => `\`${value}\``).join(", ")}`;
    }
    case "number": {
      if (typeof value !== "number" || !Number.isFinite(value)) return "a number";
      const { minimum, maximum } = property;
      if (minimum !== undefined && value < minimum) return `at least ${minimum}`;
      return maximum !== undefined && value > maximum ? `at most ${maximum}` : null;
    }
    case "boolean":
      return typeof value === "boolean" ? null : "true or false";
    case "array":
      return Array.isArray(value) && value.every((item) => typeof item === "string") ? null : "a list of strings";
  }
}
