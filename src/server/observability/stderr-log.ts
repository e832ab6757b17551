import { printableJson, printableLine } from "../../base/text/printable-text.ts";
import type { LogLevel, ServerLog } from "../host-services.ts";
import { standardStream } from "../lifecycle/stdio-stream.ts";

const ORDER: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };

/** Maximum bytes queued for a slow reader of the log, to bound memory. Lines beyond it are dropped. */
const MAX_QUEUED_LOG_BYTES = 256 * 1024;

/**
 * Returns a log that writes lines to stderr, never to stdout, which may carry the protocol. Lines are JSON, or plain
 * text on a terminal. A line that cannot be written (closed reader, full disk) is dropped; the next line reports the
 * count.
 */
export function stderrLog(level: LogLevel): ServerLog {
  let dropped = 0;
  return (lineLevel, message, fields) => {
    if (ORDER[lineLevel] < ORDER[level]) return;
    // Node loads a stream module on first use of stderr, so wait for the first line.
    const stderr = standardStream(2);
    if (stderr.writableLength > MAX_QUEUED_LOG_BYTES) {
      dropped++;
      return;
    }
    const isTTY = stderr.isTTY === true;
    const reported = dropped;
    dropped = 0;
    const before = reported > 0 ? formatLine(isTTY, "warn", droppedText(reported)) : "";
    stderr.write(before + formatLine(isTTY, lineLevel, message, fields), (error) => {
      if (error) dropped += reported + 1;
    });
  };
}

export function isLogLevel(level: string): level is LogLevel {
  return Object.hasOwn(ORDER, level);
}

function formatLine(isTTY: boolean, level: LogLevel, message: string, fields?: Record<string, unknown>): string {
  if (!isTTY) return `${printableJson({ time: new Date().toISOString(), level, message, ...fields })}\n`;
  const rest = fields ? ` ${printableJson(fields)}` : "";
  return `${level.padEnd(5)} ${printableLine(message)}${rest}\n`;
}

const droppedText = (lines: number) => (lines === 1 ? "1 log line was dropped" : `${lines} log lines were dropped`);
