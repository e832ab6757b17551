import { errorMessage } from "../../base/error-message.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import type { Actor, AuditEvent, AuditedProcess, AuditLog } from "../observability/audit-log.ts";
import { onceEnded } from "../session/process-state.ts";
import type { Session } from "../session/session.ts";
import type { Handlers } from "./handler-types.ts";

export interface AuditedMethodsDeps {
  log: AuditLog;
  /** Id of the connection's principal. */
  principal: string;
  /** Returns null before the handshake. */
  session: () => Session | null;
  /** Returns a v0 process, or null if it is unknown or has exited. */
  v0Process: (sessionId: string) => HostProcess | null;
}

/** Wraps the handlers so that each action on a process writes an audit line. */
export function withAudit(handlers: Handlers, deps: AuditedMethodsDeps): Handlers {
  const { log, principal, session, v0Process } = deps;
  const actor = (): Actor => ({ principal, session: session()?.number ?? 0 });
  const record = (event: AuditEvent) => log.write(actor(), event);
  const named = (processId: string): AuditedProcess => {
    return { processId, handle: session()?.findStarted(processId)?.handle };
  };
  /** The line has no actor: the start line names the principal, and the cause of the end is unknown here. */
  const recordEnd = (process: HostProcess, name: AuditedProcess) => {
    onceEnded(process, () => {
      const { exitCode = null, signal = null, reason = "failed" } = process.log.exit ?? {};
      log.write(null, { event: "end", ...name, exitCode, signal, reason });
    });
  };
  const recordRefusal = (processId: string, argv: readonly string[], error: unknown): never => {
    record({ event: "start-refused", processId, argv, reason: errorMessage(error) });
    throw error;
  };
  return {
    ...handlers,
    initialize: async (params, context) => {
      const result = await handlers.initialize(params, context);
      const { resumeSessionId, takeOver } = params;
      const resumed = takeOver ? "taken over" : "resumed";
      record({ event: "session", change: resumeSessionId === undefined ? "opened" : resumed });
      return result;
    },
    "process/start": async (params, context) => {
      const { processId, argv, cwd, tty } = params;
      const result = await handlers["process/start"](params, context).catch((error: unknown) =>
        recordRefusal(processId, argv, error),
      );
      const name = named(processId);
      record({ event: "start", ...name, argv, cwd, tty });
      const entry = session()?.findStarted(processId);
      if (entry) recordEnd(entry.process, name);
      return result;
    },
    "process/write": async (params, context) => {
      const name = named(params.processId);
      const { status } = await handlers["process/write"](params, context);
      record({ event: "write", ...name, bytes: params.chunk.length, status });
      return { status };
    },
    "process/closeStdin": async (params, context) => {
      const name = named(params.processId);
      const { status } = await handlers["process/closeStdin"](params, context);
      record({ event: "close-stdin", ...name, status });
      return { status };
    },
    "process/signal": (params, context) => {
      record({ event: "signal", ...named(params.processId), signal: params.signal });
      return handlers["process/signal"](params, context);
    },
    "process/terminate": (params, context) => {
      record({ event: "terminate", ...named(params.processId), mode: params.mode?.type ?? "force" });
      return handlers["process/terminate"](params, context);
    },
    "process/kill": (params, context) => {
      const { handle, signal, mode } = params;
      record(
        signal === undefined
          ? { event: "terminate", handle, mode: mode?.type ?? "force" }
          : { event: "signal", handle, signal },
      );
      return handlers["process/kill"](params, context);
    },
    "process/attach": async (params, context) => {
      const result = await handlers["process/attach"](params, context);
      record({ event: "attach", processId: result.processId, handle: result.handle, role: result.role });
      return result;
    },
    "process/share": async (params, context) => {
      const result = await handlers["process/share"](params, context);
      const { handle, role, ttlMs } = params;
      record({ event: "share", handle, role, ttlMs });
      return result;
    },
    "process/detach": async (params, context) => {
      const name = named(params.processId);
      const result = await handlers["process/detach"](params, context);
      record({ event: "detach", ...name });
      return result;
    },
    "command/exec": async (params, context) => {
      const { argv, cwd, tty } = params;
      const result = await handlers["command/exec"](params, context).catch((error: unknown) =>
        recordRefusal("", argv, error),
      );
      const name = { processId: result.sessionId };
      record({ event: "start", ...name, argv, cwd, tty });
      const process = v0Process(result.sessionId);
      if (process) recordEnd(process, name);
      return result;
    },
    "command/exec/write": async (params, context) => {
      const result = await handlers["command/exec/write"](params, context);
      const { sessionId: processId, chunk } = params;
      const status = result.accepted ? "accepted" : "refused";
      record({ event: "write", processId, bytes: chunk.length, status });
      return result;
    },
    "command/exec/terminate": (params, context) => {
      record({ event: "terminate", processId: params.sessionId, mode: "force" });
      return handlers["command/exec/terminate"](params, context);
    },
  };
}
