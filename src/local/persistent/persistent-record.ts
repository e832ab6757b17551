import type { PersistentOwner } from "../../exec/backend/persistent-process.ts";
import type { SandboxResources } from "../../exec/backend/resolved-sandbox.ts";
import { processLabels, processName } from "../../protocol/process-labels.ts";
import { processLimits, terminalQueries, terminalSize } from "../../protocol/process-schemas.ts";
import { array, boolean, enumOf, type Infer, object, optional, string, u64 } from "../../protocol/schema.ts";

/*
 * The record of a persistent process that the next server reads. Its schemas exclude the environment, which is not
 * needed again and may contain secrets.
 */

const params = object("PersistentParams", () => ({
  processId: string,
  argv: array(string),
  cwd: string,
  tty: boolean,
  pipeStdin: optional(boolean),
  size: optional(terminalSize),
  timeoutMs: optional(u64),
  maxAgeMs: optional(u64),
  limits: optional(processLimits),
  lifetime: enumOf("persistent"),
  terminalQueries: optional(terminalQueries),
  recordInput: optional(boolean),
  name: optional(processName),
  labels: optional(processLabels),
}));

const sandbox = object("PersistentSandbox", () => ({
  network: boolean,
  mountPoints: array(object("PersistentMountPoint", () => ({ path: string, contents: optional(string) }))),
  tmp: optional(object("PersistentTmp", () => ({ name: string, directory: string }))),
  pins: array(object("PersistentPin", () => ({ key: string, value: string }))),
}));

const record = object("PersistentRecord", () => ({
  /** Incremented when older records become unreadable. */
  version: enumOf("2"),
  sessionId: string,
  ownerId: string,
  handle: string,
  startedAtMs: u64,
  params,
  sandbox: optional(sandbox),
}));

export interface PersistentParams extends Infer<typeof params> {}
export interface PersistentRecord extends Infer<typeof record> {}

/** Writes only the members that the schemas declare. */
export function encodeRecord(
  owner: PersistentOwner,
  startedAtMs: number,
  persistent: PersistentParams,
  resources?: SandboxResources,
): string {
  return JSON.stringify(record.encode({ version: "2", ...owner, startedAtMs, params: persistent, sandbox: resources }));
}

/** Returns null if another version wrote the record. */
export function decodeRecord(text: string): PersistentRecord | null {
  try {
    return record.decode(JSON.parse(text));
  } catch {
    return null;
  }
}
