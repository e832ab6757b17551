import type { ProcessListing, Snapshot, StartParams } from "../exec-process.ts";
import type { EventLog } from "./event-log.ts";

/** What a log keeps of a process for somebody who did not follow it. */
export function snapshotOf(log: EventLog, running: boolean): Snapshot {
  const stdout = log.headTail("stdout");
  const stderr = log.headTail("stderr");
  const terminal = log.headTail("pty");
  const omittedBytes = stdout.omittedBytes + stderr.omittedBytes + terminal.omittedBytes;
  return {
    stdout: stdout.bytes(),
    stderr: stderr.bytes(),
    terminal: terminal.bytes(),
    truncated: omittedBytes > 0,
    omittedBytes,
    totalBytes: log.totalBytes,
    exitCode: log.exit?.exitCode ?? null,
    signal: log.exit?.signal ?? null,
    running,
  };
}

export interface ListedProcess {
  processId: string;
  /** Null where somebody else started it. */
  params: StartParams | null;
  pid: number | null;
  running: boolean;
  startedAtMs: number;
  log: EventLog;
}

/** A process as a list names it. */
export function listingOf({ params, log, ...listed }: ListedProcess): ProcessListing {
  return {
    ...listed,
    argv: params?.argv ?? [],
    cwd: params?.cwd ?? "",
    tty: params?.tty ?? false,
    exitCode: log.exit?.exitCode ?? null,
    signal: log.exit?.signal ?? null,
    outputBytes: log.totalBytes,
  };
}
