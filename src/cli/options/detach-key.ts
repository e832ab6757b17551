import { UsageError } from "../command.ts";

export const DEFAULT_DETACH_KEY = "ctrl-]";

/** Returns the byte that a terminal sends for `ctrl-X`, or null for `none`. */
export function parseDetachKey(text: string): number | null {
  if (text === "none") return null;
  const [, key] = /^(?:ctrl-|\^)([@-_a-z])$/i.exec(text) ?? [];
  if (key === undefined)
    throw new UsageError(`invalid --detach-key \`${text}\`; expected ctrl-KEY (a letter, or one of @[\\]^_) or none`);
  return key.toUpperCase().charCodeAt(0) & 0x1f;
}
