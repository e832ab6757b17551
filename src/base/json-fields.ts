/** Reads fields of untrusted JSON. A value of an unexpected type is treated like a missing one. */

import { isObject } from "./type-guards.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

const EMPTY: JsonObject = {};

export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

export function asObject(value: unknown): JsonObject {
  return isObject(value) ? value : EMPTY;
}

export function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function asString(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function asCount(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : 0;
}
