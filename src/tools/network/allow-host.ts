import { randomBytes } from "node:crypto";
import { constants, open, rename, unlink } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";
import { KeyedQueue } from "../../async/keyed-queue.ts";
import { isObject } from "../../base/type-guards.ts";
import { parseNetworkSection } from "./network-rules.ts";

/** Orders the changes of this process to one file. */
const changes = new KeyedQueue<string>();

/**
 * Adds a host to the `allow` list of `[network]` in a rules file. Comments and all other lines stay as they are. Readers see
 * the old or the new file, never a part of it. Rejects if the path is a link: the file that the user named is resolved when
 * it is loaded, and a later link could lead to another file.
 */
export async function allowHostInFile(path: string, host: string): Promise<void> {
  await changes.run(path, async () => {
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    const text = await file.readFile("utf8");
    const { parse } = await import("smol-toml");
    const changed = addAllowedHost(text, host, parse);
    if (changed !== text) await replaceFile(path, changed, (await file.stat()).mode);
  });
}

/** Returns the text with the host in its `allow` list. Throws if the list has a form that cannot be extended. */
export function addAllowedHost(text: string, host: string, parse: (text: string) => Record<string, unknown>): string {
  const before = parse(text);
  const { allow = [] } = isObject(before.network) ? before.network : {};
  const listed = before.network === undefined ? [] : parseNetworkSection(before.network).allow;
  if (listed.includes(host) || !Array.isArray(allow)) return text;
  const changed = insertHost(text, JSON.stringify(host), allow.length > 0);
  const expected = {
    ...before,
    network: { ...(isObject(before.network) ? before.network : {}), allow: [host, ...allow] },
  };
  if (changed === null || !isDeepStrictEqual(toPlain(tryParse(changed, parse)), toPlain(expected)))
    throw new Error(`cannot extend \`allow\` of [network]; add ${JSON.stringify(host)} to the list by hand`);
  return changed;
}

/** Matches the header `[network]` on its own line. */
const HEADER = /^[ \t]*\[[ \t]*network[ \t]*\][ \t]*(?:#.*)?$/m;
const NEXT_HEADER = /^[ \t]*\[/m;
const ALLOW_LIST = /^[ \t]*allow[ \t]*=[ \t]*\[/m;

/** Inserts the quoted host. The caller verifies the result, because these patterns also match inside multi-line strings. */
function insertHost(text: string, quoted: string, hasHosts: boolean): string | null {
  const header = HEADER.exec(text);
  if (!header) return `${text}${text === "" || text.endsWith("\n") ? "" : "\n"}\n[network]\nallow = [${quoted}]\n`;
  const start = header.index + header[0].length;
  const end = start + (NEXT_HEADER.exec(text.slice(start))?.index ?? text.length);
  const list = ALLOW_LIST.exec(text.slice(start, end));
  if (!list) return `${text.slice(0, start)}\nallow = [${quoted}]${text.slice(start)}`;
  const at = start + list.index + list[0].length;
  const rest = text.slice(at);
  const isMultiline = /^[ \t]*\r?\n/.test(rest);
  const entry = isMultiline ? `\n  ${quoted},` : hasHosts ? `${quoted}, ` : quoted;
  return `${text.slice(0, at)}${entry}${rest}`;
}

function tryParse(text: string, parse: (text: string) => Record<string, unknown>): unknown {
  try {
    return parse(text);
  } catch {
    return null;
  }
}

/** Copies a parsed file without prototypes, for comparison. */
function toPlain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? `${part}` : part)));
}

async function replaceFile(path: string, text: string, mode: number): Promise<void> {
  const sibling = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    await using file = await open(sibling, "wx", 0o600);
    await file.writeFile(text);
    await file.chmod(mode & 0o777);
    await file.sync();
    await rename(sibling, path);
  } catch (error) {
    await unlink(sibling).catch(() => undefined);
    throw error;
  }
}
