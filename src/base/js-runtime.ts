/**
 * The JavaScript runtime of this program. Only this module detects it. Bun and Deno run the client, and local processes with
 * pipes. They cannot load the native addon, which uses libuv: the attempt ends the program.
 */

/** Returns the name and version of the runtime, for example `Bun 1.4.4`; null for Node. */
export function detectOtherRuntime(versions: Readonly<Record<string, string | undefined>>): string | null {
  if (versions.bun !== undefined) return `Bun ${versions.bun}`;
  return versions.deno === undefined ? null : `Deno ${versions.deno}`;
}

/** Empty in a browser. */
const versions = "process" in globalThis ? process.versions : {};
/** Name and version of the runtime of this program; null for Node and browsers. */
export const OTHER_RUNTIME: string | null = detectOtherRuntime(versions);

export const IS_DENO: boolean = "deno" in versions;

/** Why this runtime lacks features of the native addon, and the remedy; null for Node. */
export const MISSING_RUNTIME_SUPPORT: string | null =
  OTHER_RUNTIME === null
    ? null
    : `not supported by ${OTHER_RUNTIME}, which cannot load the native addon; connect to a server by URL, or use Node 24`;
