/**
 * Small decoders that carry their type, so that the wire is defined once and everything else is derived from it.
 *
 * Not a library, for three reasons: the refusals have to read like the reference server's, the table is
 * loaded before the first answer (a schema library costs more start-up time than the rest of the server), and a `bytes`
 * field is base64 on the wire but a Uint8Array on both sides of it.
 */

import { decodeBase64, encodeBase64 } from "./base64.ts";

/** Thrown by `decode`; the message says what was wrong, in the reference server's words. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
}

export interface Schema<T> {
  /** From parsed JSON to the typed value. */
  decode(value: unknown): T;
  /** From the typed value to something JSON.stringify takes. */
  encode(value: T): unknown;
  /** How the type reads in documentation. */
  readonly doc: string;
  /** May be absent or null. */
  readonly isOptional?: boolean;
  /** The fields of an object, for documentation. */
  readonly fields?: Fields | undefined;
  /** What an array, a map or a nullable is made of, for documentation. */
  readonly item?: Schema<unknown> | undefined;
}

export type Infer<S> = S extends Schema<infer T> ? T : never;

export type Fields = Readonly<Record<string, Schema<unknown>>>;
type OptionalKeys<F> = { [K in keyof F]: undefined extends Infer<F[K]> ? K : never }[keyof F];
// Each maps over `K extends keyof F`, so that what a schema's comment says of a field reaches the users of the type.
type Required<F, K extends keyof F> = { -readonly [P in K]: Infer<F[P]> };
type Optional<F, K extends keyof F> = { -readonly [P in K]?: Infer<F[P]> | undefined };
type InferFields<F> = Required<F, Exclude<keyof F, OptionalKeys<F>>> & Optional<F, OptionalKeys<F>>;
type Flat<T> = { [K in keyof T]: T[K] };

/** A struct's schema. Declared by its fields, so that their comments stand in the published declarations. */
export interface ObjectSchema<F extends Fields> extends Schema<Flat<InferFields<F>>> {}

const same = <T>(value: T): unknown => value;

export const string: Schema<string> = {
  doc: "string",
  encode: same,
  decode: (value) => (typeof value === "string" ? value : refuse(value, "a string")),
};

/**
 * Ids are kept, compared and sent back, so they are short: in UTF-16 units, ten times what anybody was seen to use. A
 * longer one is refused.
 */
export const MAX_ID_LENGTH = 1024;

/** A name that a client chooses for something of its own. */
export const id: Schema<string> = {
  doc: "string",
  encode: same,
  decode: (value) => {
    const text = string.decode(value);
    if (text.length > MAX_ID_LENGTH)
      throw new DecodeError(`an id is at most ${MAX_ID_LENGTH} characters long, this one has ${text.length}`);
    return text;
  },
};

export const boolean: Schema<boolean> = {
  doc: "boolean",
  encode: same,
  decode: (value) => (typeof value === "boolean" ? value : refuse(value, "a boolean")),
};

export const unknown: Schema<unknown> = { doc: "any", encode: same, decode: same };

function integer(doc: string, min: number, max: number): Schema<number> {
  return {
    doc,
    encode: same,
    decode: (value) => {
      if (typeof value !== "number") return refuse(value, doc);
      if (!Number.isInteger(value) || value < min || value > max) throw new DecodeError("invalid number");
      return value;
    },
  };
}

export const u16 = integer("u16", 0, 0xffff);
export const i32 = integer("i32", -(2 ** 31), 2 ** 31 - 1);
/** A 64-bit number on the wire; numbers JavaScript cannot hold exactly are refused. */
export const u64 = integer("u64", 0, Number.MAX_SAFE_INTEGER);
export const usize = integer("usize", 0, Number.MAX_SAFE_INTEGER);
export const f64: Schema<number> = {
  doc: "number",
  encode: same,
  decode: (value) => (typeof value === "number" ? value : refuse(value, "f64")),
};

export const bytes: Schema<Uint8Array> = {
  doc: "base64 string",
  encode: encodeBase64,
  decode: (value) => {
    // Decoded already, while the message was parsed (`long-chunk.ts`): JSON itself has no such value.
    if (value instanceof Uint8Array) return value;
    if (typeof value !== "string") return refuse(value, "a string");
    const decoded = decodeBase64(value);
    if (!decoded.ok) throw new DecodeError(decoded.problem);
    return decoded.bytes;
  },
};

/** A string that must pass `check`, which throws a DecodeError when it does not. */
export function checked(doc: string, check: (value: string) => void): Schema<string> {
  return {
    doc,
    encode: same,
    decode: (value) => {
      const text = string.decode(value);
      check(text);
      return text;
    },
  };
}

export function oneOf<const V extends string>(...variants: V[]): Schema<V> {
  const expected = variants.map((variant) => `\`${variant}\``).join(", ");
  return {
    doc: variants.map((variant) => `"${variant}"`).join(" \\| "),
    encode: same,
    decode: (value) => {
      const found = variants.find((variant) => variant === value);
      if (found !== undefined) return found;
      if (typeof value !== "string") return refuse(value, "string or map");
      const list = variants.length === 1 ? expected : `one of ${expected}`;
      throw new DecodeError(`unknown variant \`${value}\`, expected ${list}`);
    },
  };
}

export function array<T>(item: Schema<T>): Schema<T[]> {
  return {
    doc: `${item.doc}[]`,
    item,
    encode: (values) => values.map(item.encode),
    decode: (value) =>
      Array.isArray(value) ? value.map((one) => item.decode(one)) : refuse(value, "a sequence"),
  };
}

export function map<T>(item: Schema<T>): Schema<Record<string, T>> {
  return {
    doc: `{string: ${item.doc}}`,
    item,
    encode: (values) =>
      Object.fromEntries(Object.entries(values).map(([key, one]) => [key, item.encode(one)])),
    decode: (value) => {
      if (!isObject(value)) return refuse(value, "a map");
      const decoded: Record<string, T> = Object.create(null);
      for (const key of Object.keys(value)) decoded[key] = item.decode(value[key]);
      return decoded;
    },
  };
}

/** Absent and null are the same: undefined. */
export function optional<T>(inner: Schema<T>): Schema<T | undefined> {
  return {
    doc: inner.doc,
    isOptional: true,
    encode: (value) => (value === undefined ? undefined : inner.encode(value)),
    decode: (value) => (value === undefined || value === null ? undefined : inner.decode(value)),
    fields: inner.fields,
    item: inner.item,
  };
}

/** Always present, but may be null. */
export function nullable<T>(inner: Schema<T>): Schema<T | null> {
  return {
    doc: `${inner.doc} or null`,
    item: inner,
    encode: (value) => (value === null ? null : inner.encode(value)),
    decode: (value) => (value === null || value === undefined ? null : inner.decode(value)),
  };
}

/** A struct. Unknown members are ignored; a positional array is taken in field order, as the reference server does. */
export function object<const F extends Fields>(name: string, fields: F): ObjectSchema<F> {
  const entries = Object.entries(fields);
  return {
    doc: name,
    fields,
    encode: (value) => {
      const encoded: Record<string, unknown> = {};
      const source: Record<string, unknown> = value;
      for (const [key, schema] of entries) {
        const member = source[key];
        if (member !== undefined) encoded[key] = schema.encode(member);
      }
      return encoded;
    },
    decode: (value) => {
      const source = Array.isArray(value) ? byPosition(name, entries, value) : value;
      if (!isObject(source)) return refuse(value, `struct ${name}`);
      const decoded: Record<string, unknown> = {};
      for (const [key, schema] of entries) {
        const member = source[key];
        if (member === undefined) {
          if (schema.isOptional) continue;
          throw new DecodeError(`missing field \`${key}\``);
        }
        const field = schema.decode(member);
        if (field !== undefined) decoded[key] = field;
      }
      // The loop above has put exactly the declared fields there, each decoded by its own schema.
      return decoded as Flat<InferFields<F>>;
    },
  };
}

function byPosition(
  name: string,
  entries: [string, Schema<unknown>][],
  values: unknown[],
): Record<string, unknown> {
  const required = entries.filter(([, schema]) => !schema.isOptional).length;
  if (values.length < required) {
    throw new DecodeError(
      `invalid length ${values.length}, expected struct ${name} with ${entries.length} elements`,
    );
  }
  return Object.fromEntries(entries.map(([key], index) => [key, values[index]]));
}

/** A union of structs told apart by their `type` member. */
export function tagged<const V extends Record<string, Fields>>(
  name: string,
  variants: V,
): Schema<{ [K in keyof V & string]: Flat<{ type: K } & InferFields<V[K]>> }[keyof V & string]> {
  const schemas = new Map(Object.entries(variants).map(([tag, fields]) => [tag, object(name, fields)]));
  type Union = { [K in keyof V & string]: Flat<{ type: K } & InferFields<V[K]>> }[keyof V & string];
  const expected = [...schemas.keys()].map((tag) => `\`${tag}\``).join(", ");
  return {
    doc: [...schemas]
      .map(
        ([tag, schema]) =>
          `{type: "${tag}"${Object.entries(schema.fields ?? {})
            .map(fieldDoc)
            .join("")}}`,
      )
      .join(" \\| "),
    encode: (value) => ({ type: value.type, ...Object(schemas.get(value.type)?.encode(value as never)) }),
    decode: (value) => {
      if (!isObject(value)) return refuse(value, `internally tagged enum ${name}`);
      const tag = value.type;
      if (tag === undefined) throw new DecodeError("missing field `type`");
      const schema = typeof tag === "string" ? schemas.get(tag) : undefined;
      if (!schema) throw new DecodeError(`unknown variant \`${String(tag)}\`, expected one of ${expected}`);
      // The tag was looked up among the variants, and the fields were decoded by that variant's schema.
      return { type: tag, ...schema.decode(value) } as Union;
    },
  };
}

function fieldDoc([key, schema]: [string, Schema<unknown>]): string {
  return `, ${key}${schema.isOptional ? "?" : ""}: ${schema.doc}`;
}

/** No params: absent, null or an empty object. */
export const unit: Schema<Record<string, never>> = {
  doc: "none",
  encode: () => ({}),
  decode: (value) => {
    if (value === undefined || value === null) return {};
    if (Array.isArray(value)) throw new DecodeError("invalid type: sequence, expected unit");
    if (!isObject(value) || Object.keys(value).length > 0) return refuse(value, "unit");
    return {};
  },
};

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function refuse(value: unknown, expected: string): never {
  throw new DecodeError(`invalid type: ${kindOf(value)}, expected ${expected}`);
}

/** What a value is, in the reference server's words. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "sequence";
  switch (typeof value) {
    case "string":
      return `string ${JSON.stringify(value)}`;
    case "number":
      return "number";
    case "boolean":
      return `boolean \`${value}\``;
    default:
      return "map";
  }
}
