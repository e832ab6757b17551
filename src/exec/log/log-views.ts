import type { ProcessListing, Snapshot, StartParams } from "../exec-process.ts";
import type { EventLog } from "./event-log.ts";

/** Builds a snapshot from the event log. */
export function takeSnapshot(log: EventLog, running: boolean): Snapshot {
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
  /** Null if another session started the process. */
  params: StartParams | null;
  pid: number | null;
  running: boolean;
  startedAtMs: number;
  log: EventLog;
}

/** Builds the listing entry of a process. */
export function toListing({ params, log, ...listed }: ListedProcess): ProcessListing {
  return {
    ...listed,
    argv: params?.argv ?? [],
    cwd: params?.cwd ?? "",
    tty: params?.tty ?? false,
    exitCode: log.exit?.exitCode ?? null,
    signal: log.exit?.signal ?? null,
    outputBytes: log.totalBytes,
    name: params?.name,
    labels: params?.labels,
  };
}
