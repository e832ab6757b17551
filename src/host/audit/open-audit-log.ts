import { systemClock } from "../../async/clock.ts";
import { FlagError } from "../../base/flag-error.ts";
import { loadAddon } from "../../native/load-addon.ts";
import { AuditLog } from "../../server/audit/audit-log.ts";
import { AuditSink, type AuditSinkAddress } from "../../server/audit/audit-sink.ts";

/** Opens the file of `--audit`, and the socket of `--audit-sink`. Throws a FlagError. */
export function openAuditLog(file: string, sink: AuditSinkAddress | undefined): AuditLog {
  const native = loadAddon();
  const system = native.type === "loaded" ? native.addon : null;
  if (sink && native.type === "missing")
    throw new FlagError("--audit-sink", sink.path, `native addon not available (${native.why})`);
  try {
    return new AuditLog(file, { system, sink: sink && system ? new AuditSink(sink, system, systemClock) : undefined });
  } catch (error) {
    throw new FlagError("--audit", file, error instanceof Error ? (error.cause ?? error) : error);
  }
}
