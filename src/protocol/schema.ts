/**
 * Small typed decoders and encoders. Each message is defined once, and its TypeScript type is derived from the schema.
 *
 * Three reasons against a schema library: error texts must match those of Codex; loading a library takes longer than the
 * rest of the server start; and `bytes` is base64 on the wire but a Uint8Array in the program.
 */

import { isObject } from "../base/type-guards.ts";
import { type Base64Text, decodeBase64, encodeBase64, InvalidBase64 } from "./base64.ts";

/** Thrown by `decode`. The message has the wording of Codex. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
}

export interface Schema<T> {
  /** Converts parsed JSON to the typed value. */
  decode(value: unknown): T;
  /** Converts the typed value to a value for JSON.stringify, without `extended` fields if the peer is not extended. */
  encode(value: T, isPeerExtended?: boolean): unknown;
  /** Name of the type in PROTOCOL.md. */
  readonly doc: string;
  /** Whether the field may be absent. */
  readonly isOptional?: boolean;
  /** Whether only clients that requested an extension receive the field. */
  readonly isExtended?: boolean;
  /** Returns the fields of an object, for PROTOCOL.md. */
  readonly fields?: (() => Fields) | undefined;
  /** Element type of an array, a map or a nullable, for PROTOCOL.md. */
  readonly item?: Schema<unknown> | undefined;
}

export type Infer<S> = S extends Schema<infer T> ? T : never;

export type Fields = Readonly<Record<string, Schema<unknown>>>;
type OptionalKeys<F> = { [K in keyof F]: undefined extends Infer<F[K]> ? K : never }[keyof F];
// Both map over `K extends keyof F`, which carries the comments of the schema fields over to the derived types.
type Required<F, K extends keyof F> = { -readonly [P in K]: Infer<F[P]> };
type Optional<F, K extends keyof F> = { -readonly [P in K]?: Infer<F[P]> | undefined };
type InferFields<F> = Required<F, Exclude<keyof F, OptionalKeys<F>>> & Optional<F, OptionalKeys<F>>;
type Flat<T> = { [K in keyof T]: T[K] };

/** Schema of an object. Parameterized by its fields, so that the published declarations contain their comments. */
export interface ObjectSchema<F extends Fields> extends Schema<Flat<InferFields<F>>> {}

const identity = <T>(value: T): unknown => value;

export const string: Schema<string> = {
  doc: "string",
  encode: identity,
  decode: (value) => (typeof value === "string" ? value : reject(value, "a string")),
};

/**
 * Maximum length of an id in UTF-16 units. Ids are stored, compared and echoed, so they must stay short. The limit is
 * ten times the longest id that known clients use.
 */
export const MAX_ID_LENGTH = 1024;

/** An id chosen by the client. */
export const id = checkedString("string", ({ length }) => {
  if (length > MAX_ID_LENGTH)
    throw new DecodeError(`an id is at most ${MAX_ID_LENGTH} characters long, this one has ${length}`);
});

export const boolean: Schema<boolean> = {
  doc: "boolean",
  encode: identity,
  decode: (value) => (typeof value === "boolean" ? value : reject(value, "a boolean")),
};

export const unknown: Schema<unknown> = { doc: "any", encode: identity, decode: identity };

function integer(doc: string, min: number, max: number): Schema<number> {
  return {
    doc,
    encode: identity,
    decode: (value) => {
      if (typeof value !== "number") return reject(value, doc);
      if (!Number.isInteger(value) || value < min || value > max) throw new DecodeError("invalid number");
      return value;
    },
  };
}

export const u16 = integer("u16", 0, 0xffff);
export const i32 = integer("i32", -(2 ** 31), 2 ** 31 - 1);
/** An unsigned integer. Rejects values beyond the exact range of JavaScript numbers. */
export const u64 = integer("u64", 0, Number.MAX_SAFE_INTEGER);
export const usize = integer("usize", 0, Number.MAX_SAFE_INTEGER);
export const f64: Schema<number> = {
  doc: "number",
  encode: identity,
  decode: (value) => (typeof value === "number" ? value : reject(value, "f64")),
};

/** Base64 that the handler decodes with `decodeBase64`. Callers pass a string; a handler gets a `Base64Text`. */
export const base64Text: Schema<string> = {
  doc: "string",
  encode: (value: Base64Text) => (value instanceof Uint8Array ? encodeBase64(value) : value),
  decode: (value) => {
    // A parser has decoded the base64 of a large message.
    if (typeof value === "string" || value instanceof Uint8Array || value instanceof InvalidBase64)
      return value as string;
    return reject(value, "a string");
  },
};

export const bytes: Schema<Uint8Array> = {
  doc: "base64 string",
  encode: encodeBase64,
  decode: (value) => {
    const decoded = decodeBase64(base64Text.decode(value));
    if (!decoded.ok) throw new DecodeError(decoded.problem);
    return decoded.bytes;
  },
};

/** A string validated by `check`, which throws for an invalid value. */
export function checkedString(doc: string, check: (value: string) => void): Schema<string> {
  return {
    doc,
    encode: identity,
    decode: (value) => {
      const text = string.decode(value);
      check(text);
      return text;
    },
  };
}

export function enumOf<const V extends string>(...variants: V[]): Schema<V> {
  return {
    doc: variants.map((variant) => `"${variant}"`).join(" \\| "),
    encode: identity,
    decode: (value) => {
      const found = variants.find((variant) => variant === value);
      if (found !== undefined) return found;
      if (typeof value !== "string") return reject(value, "string or map");
      const names = variants.map((variant) => `\`${variant}\``);
      const expected = names.length > 2 ? `one of ${names.join(", ")}` : names.join(" or ");
      throw new DecodeError(`unknown variant \`${value}\`, expected ${expected}`);
    },
  };
}

export function array<T>(item: Schema<T>): Schema<T[]> {
  return {
    doc: `${item.doc}[]`,
    item,
    encode: (values, isPeerExtended) => values.map((value) => item.encode(value, isPeerExtended)),
    decode: (value) =>
      Array.isArray(value) ? value.map((element) => item.decode(element)) : reject(value, "a sequence"),
  };
}

export function map<T>(item: Schema<T>): Schema<Record<string, T>> {
  return {
    doc: `{string: ${item.doc}}`,
    item,
    encode: (values, isPeerExtended) =>
      Object.fromEntries(Object.entries(values).map(([key, value]) => [key, item.encode(value, isPeerExtended)])),
    decode: (value) => {
      if (!isObject(value)) return reject(value, "a map");
      const decoded: Record<string, T> = Object.create(null);
      for (const key of Object.keys(value)) decoded[key] = item.decode(value[key]);
      return decoded;
    },
  };
}

/** A field that may be absent, but is never null. */
export function optional<T>(inner: Schema<T>): Schema<T | undefined> {
  return {
    ...inner,
    isOptional: true,
    encode: (value, isPeerExtended) => (value === undefined ? undefined : inner.encode(value, isPeerExtended)),
    decode: (value) => (value === undefined ? undefined : inner.decode(value)),
  };
}

/** A field that is always present, but may be null. */
export function nullable<T>(inner: Schema<T>): Schema<T | null> {
  return {
    doc: `${inner.doc} or null`,
    item: inner,
    encode: (value, isPeerExtended) => (value === null ? null : inner.encode(value, isPeerExtended)),
    decode: (value) => (value === null ? null : inner.decode(value)),
  };
}

/** A field that may be absent or null, with the same meaning. Decodes null to undefined and is never sent as null. */
export function nullish<T>(inner: Schema<T>): Schema<T | undefined> {
  const present = optional(inner);
  return {
    ...present,
    doc: `${inner.doc} or null`,
    item: inner,
    fields: undefined,
    decode: (value) => present.decode(value ?? undefined),
  };
}

/** An optional field that the server sends only to clients that requested an extension. */
export function extended<T>(inner: Schema<T>): Schema<T | undefined> {
  return { ...optional(inner), isExtended: true };
}

/** An object. Ignores unknown members. Like Codex, also accepts an array with the values in field order. */
export function object<const F extends Fields>(name: string, fields: () => F): ObjectSchema<F> {
  // Listed on first use, because a client uses few of its schemas.
  let listed: F | undefined;
  let entries: [string, Schema<unknown>][] | undefined;
  let codexEntries: [string, Schema<unknown>][] | undefined;
  const allFields = () => (listed ??= fields());
  const allEntries = () => (entries ??= Object.entries(allFields()));
  const sentToCodex = () => (codexEntries ??= allEntries().filter(([, schema]) => !schema.isExtended));
  return {
    doc: name,
    fields: allFields,
    encode: (value, isPeerExtended = true) => {
      const encoded: Record<string, unknown> = {};
      const source: Record<string, unknown> = value;
      for (const [key, schema] of isPeerExtended ? allEntries() : sentToCodex()) {
        const member = source[key];
        if (member !== undefined) encoded[key] = schema.encode(member, isPeerExtended);
      }
      return encoded;
    },
    decode: (value) => {
      const source = Array.isArray(value) ? byPosition(name, allEntries(), value) : value;
      if (!isObject(source)) return reject(value, `struct ${name}`);
      const decoded: Record<string, unknown> = {};
      for (const [key, schema] of allEntries()) {
        const member = source[key];
        if (member === undefined) {
          if (schema.isOptional) continue;
          throw new DecodeError(`missing field \`${key}\``);
        }
        const field = schema.decode(member);
        if (field !== undefined) decoded[key] = field;
      }
      // The loop above sets exactly the declared fields, each decoded by its schema.
      return decoded as Flat<InferFields<F>>;
    },
  };
}

function byPosition(name: string, entries: [string, Schema<unknown>][], values: unknown[]): Record<string, unknown> {
  const required = entries.filter(([, schema]) => !schema.isOptional).length;
  if (values.length < required) {
    throw new DecodeError(`invalid length ${values.length}, expected struct ${name} with ${entries.length} elements`);
  }
  return Object.fromEntries(entries.map(([key], index) => [key, values[index]]));
}

/** A union of objects that their `type` member distinguishes. */
export function taggedUnion<const V extends Record<string, Fields>>(
  name: string,
  variants: V,
): Schema<{ [K in keyof V & string]: Flat<{ type: K } & InferFields<V[K]>> }[keyof V & string]> {
  const schemas = new Map(Object.entries(variants).map(([tag, fields]) => [tag, object(name, () => fields)]));
  type Union = { [K in keyof V & string]: Flat<{ type: K } & InferFields<V[K]>> }[keyof V & string];
  const expected = [...schemas.keys()].map((tag) => `\`${tag}\``).join(", ");
  return {
    doc: [...schemas]
      .map(
        ([tag, schema]) =>
          `{type: "${tag}"${Object.entries(schema.fields?.() ?? {})
            .map(([key, field]) => `, ${key}${field.isOptional ? "?" : ""}: ${field.doc}`)
            .join("")}}`,
      )
      .join(" \\| "),
    encode: (value, isPeerExtended) => ({
      type: value.type,
      ...Object(schemas.get(value.type)?.encode(value as never, isPeerExtended)),
    }),
    decode: (value) => {
      if (!isObject(value)) return reject(value, `internally tagged enum ${name}`);
      const tag = value.type;
      if (tag === undefined) throw new DecodeError("missing field `type`");
      const schema = typeof tag === "string" ? schemas.get(tag) : undefined;
      if (!schema) throw new DecodeError(`unknown variant \`${String(tag)}\`, expected one of ${expected}`);
      // `tag` is one of the variants, and its schema decoded the fields.
      return { type: tag, ...schema.decode(value) } as Union;
    },
  };
}

/** Empty params: absent, null or an empty object. */
export const noParams: Schema<Record<string, never>> = {
  doc: "none",
  encode: () => ({}),
  decode: (value) => {
    if (value === undefined || value === null) return {};
    if (Array.isArray(value)) throw new DecodeError("invalid type: sequence, expected unit");
    if (!isObject(value) || Object.keys(value).length > 0) return reject(value, "unit");
    return {};
  },
};

function reject(value: unknown, expected: string): never {
  throw new DecodeError(`invalid type: ${kindOf(value)}, expected ${expected}`);
}

/** Describes the type of a value in the wording of Codex. */
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
