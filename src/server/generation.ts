import { randomBytes } from "./auth/random-bytes.ts";

/**
 * Names one run of a server program: `INSTANCE-N`. The servers that follow one another below a keeper share the instance
 * and are counted; every other server is the first of its own.
 */
export function newGeneration(): string {
  return `${randomBytes(4).toString("hex")}-1`;
}

/** Told with a refusal of something that an earlier server may have had, so that nobody repeats a side effect by mistake. */
export function notOfThis(generation: string): string {
  return `this server is generation ${generation}, what earlier ones had and was not kept is gone`;
}
