import type { KeptOwner } from "../../exec/kept-process.ts";
import { processLimits, terminalQueries, terminalSize } from "../../protocol/process-schemas.ts";
import { array, boolean, type Infer, object, oneOf, optional, string, u64 } from "../../protocol/schema.ts";

/*
 * What one server records of a kept process for the next. Its environment is not part of it: it is not needed again,
 * and may hold secrets.
 */

const params = object("KeptParams", {
  processId: string,
  argv: array(string),
  cwd: string,
  tty: boolean,
  pipeStdin: optional(boolean),
  size: optional(terminalSize),
  timeoutMs: optional(u64),
  maxAgeMs: optional(u64),
  limits: optional(processLimits),
  lifetime: oneOf("kept"),
  terminalQueries: optional(terminalQueries),
  recordInput: optional(boolean),
});

const record = object("KeptRecord", {
  /** Raised whenever an older record can no longer be read. */
  version: oneOf("1"),
  sessionId: string,
  ownerId: string,
  handle: string,
  startedAtMs: u64,
  params,
});

export type KeptParams = Infer<typeof params>;
export type KeptRecord = Infer<typeof record>;

export function writeRecord(owner: KeptOwner, startedAtMs: number, kept: KeptParams): string {
  const { processId, argv, cwd, tty, pipeStdin, size, timeoutMs, maxAgeMs, limits } = kept;
  const { terminalQueries, recordInput } = kept;
  const written = {
    processId,
    argv,
    cwd,
    tty,
    pipeStdin,
    size,
    timeoutMs,
    maxAgeMs,
    limits,
    lifetime: "kept",
    terminalQueries,
    recordInput,
  } as const;
  return JSON.stringify(record.encode({ version: "1", ...owner, startedAtMs, params: written }));
}

/** Null when another version wrote it. */
export function readRecord(text: string): KeptRecord | null {
  try {
    return record.decode(JSON.parse(text));
  } catch {
    return null;
  }
}
