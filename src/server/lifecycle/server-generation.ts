import { randomBytes } from "../auth/random-bytes.ts";

/**
 * Returns the generation of a new server: `INSTANCE-N`. Successive servers of one supervisor share the instance and
 * increment N. Every other server gets a new instance with N = 1.
 */
export function newGeneration(): string {
  return `${randomBytes(4).toString("hex")}-1`;
}

/**
 * Returns the text appended to "unknown session" and "unknown process" errors. It warns that an earlier server may have
 * had the session or process: a client that starts a command again could repeat its side effects.
 */
export function generationHint(generation: string): string {
  return `this server is generation ${generation}, earlier generations left only their persistent processes`;
}
