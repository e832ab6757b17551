import type { LogLevel, ServerLog } from "./host-services.ts";

const ORDER: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };

/**
 * Lines on stderr, never on stdout, which may be the wire: JSON for programs, plain words on a terminal. Small enough to
 * cost nothing before the first line.
 */
export function stderrLog(level: LogLevel): ServerLog {
  return (lineLevel, message, fields) => {
    if (ORDER[lineLevel] < ORDER[level]) return;
    // Only now: Node loads a stream for it when it is first asked for.
    const { stderr } = process;
    if (stderr.isTTY) {
      const rest = fields ? ` ${JSON.stringify(fields)}` : "";
      stderr.write(`${lineLevel.padEnd(5)} ${message}${rest}\n`);
    } else {
      stderr.write(
        `${JSON.stringify({ time: new Date().toISOString(), level: lineLevel, message, ...fields })}\n`,
      );
    }
  };
}

export function isLogLevel(level: string): level is LogLevel {
  return Object.hasOwn(ORDER, level);
}
