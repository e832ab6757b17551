import { visibleJson, visibleLine } from "../../base/printable-text.ts";
import type { LogLevel, ServerLog } from "../host-services.ts";
import { standardStream } from "../lifecycle/stdio-stream.ts";

const ORDER: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };

/** Lines that wait for a reader of the log; beyond this much they are dropped, since a log must not make a server grow. */
const MAX_QUEUED_LOG_BYTES = 256 * 1024;

/**
 * Lines on stderr, never on stdout, which may be the wire: JSON for programs, plain words on a terminal. Small enough to
 * cost nothing before the first line. A line that cannot be written (its reader is gone, its disk is full) is dropped; how
 * many were is told with the next line that can be.
 */
export function stderrLog(level: LogLevel): ServerLog {
  let dropped = 0;
  return (lineLevel, message, fields) => {
    if (ORDER[lineLevel] < ORDER[level]) return;
    // Only now: Node loads a stream for it when it is first asked for.
    const stderr = standardStream(2);
    if (stderr.writableLength > MAX_QUEUED_LOG_BYTES) {
      dropped++;
      return;
    }
    const isTTY = stderr.isTTY === true;
    const told = dropped;
    dropped = 0;
    const before = told > 0 ? formatted(isTTY, "warn", droppedText(told)) : "";
    stderr.write(before + formatted(isTTY, lineLevel, message, fields), (error) => {
      if (error) dropped += told + 1;
    });
  };
}

export function isLogLevel(level: string): level is LogLevel {
  return Object.hasOwn(ORDER, level);
}

function formatted(
  isTTY: boolean,
  level: LogLevel,
  message: string,
  fields?: Record<string, unknown>,
): string {
  if (!isTTY) return `${visibleJson({ time: new Date().toISOString(), level, message, ...fields })}\n`;
  const rest = fields ? ` ${visibleJson(fields)}` : "";
  return `${level.padEnd(5)} ${visibleLine(message)}${rest}\n`;
}

const droppedText = (lines: number) =>
  lines === 1 ? "1 log line was dropped" : `${lines} log lines were dropped`;
