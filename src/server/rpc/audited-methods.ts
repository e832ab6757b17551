import { messageOf } from "../../base/error-message.ts";
import type { HostProcess } from "../../exec/host-backend.ts";
import type { Handlers } from "../handlers.ts";
import type { Actor, AuditEvent, AuditedProcess, AuditLog } from "../observability/audit-log.ts";
import type { Session } from "../session.ts";

export interface AuditedMethodsDeps {
  log: AuditLog;
  /** The principal of the connection. */
  principal: string;
  /** Null before the handshake. */
  session: () => Session | null;
  /** A process of the first generation. */
  v0Process: (sessionId: string) => HostProcess | null;
}

/** The same methods, each of which that does something to a process leaves a line. */
export function auditedMethods(handlers: Handlers, deps: AuditedMethodsDeps): Handlers {
  const { log, principal, session, v0Process } = deps;
  const actor = (): Actor => ({ principal, session: session()?.number ?? 0 });
  const tell = (event: AuditEvent) => log.write(actor(), event);
  const named = (processId: string): AuditedProcess => {
    const handle = session()?.handleOf(processId) ?? undefined;
    return { processId, handle };
  };
  /** By whom it was started is with its start; it ends by itself as far as this line knows. */
  const tellEnd = (process: HostProcess, name: AuditedProcess) => {
    const look = () => {
      const { exit, failure } = process.log;
      if (exit === null && failure === null) return;
      stop();
      const { exitCode = null, signal = null, reason = "failed" } = exit ?? {};
      log.write(null, { event: "end", ...name, exitCode, signal, reason });
    };
    const stop = process.log.listen(look);
    look();
  };
  const tellRefused = (processId: string, argv: readonly string[], error: unknown): never => {
    tell({ event: "start-refused", processId, argv, reason: messageOf(error) });
    throw error;
  };
  return {
    ...handlers,
    initialize: async (params, context) => {
      const result = await handlers.initialize(params, context);
      const { resumeSessionId, takeOver } = params;
      const resumed = takeOver ? "taken over" : "resumed";
      tell({ event: "session", change: resumeSessionId === undefined ? "opened" : resumed });
      return result;
    },
    "process/start": async (params, context) => {
      const { processId, argv, cwd, tty } = params;
      const result = await handlers["process/start"](params, context).catch((error: unknown) =>
        tellRefused(processId, argv, error),
      );
      const name = named(processId);
      tell({ event: "start", ...name, argv, cwd, tty });
      const process = await session()?.find(processId);
      if (process) tellEnd(process, name);
      return result;
    },
    "process/write": async (params, context) => {
      const name = named(params.processId);
      const { status } = await handlers["process/write"](params, context);
      tell({ event: "write", ...name, bytes: params.chunk.length, status });
      return { status };
    },
    "process/closeStdin": async (params, context) => {
      const name = named(params.processId);
      const { status } = await handlers["process/closeStdin"](params, context);
      tell({ event: "close-stdin", ...name, status });
      return { status };
    },
    "process/signal": (params, context) => {
      tell({ event: "signal", ...named(params.processId), signal: params.signal });
      return handlers["process/signal"](params, context);
    },
    "process/terminate": (params, context) => {
      tell({ event: "terminate", ...named(params.processId), mode: params.mode?.type ?? "force" });
      return handlers["process/terminate"](params, context);
    },
    "process/kill": (params, context) => {
      const { handle, signal, mode } = params;
      tell(
        signal === undefined
          ? { event: "terminate", handle, mode: mode?.type ?? "force" }
          : { event: "signal", handle, signal },
      );
      return handlers["process/kill"](params, context);
    },
    "process/attach": async (params, context) => {
      const result = await handlers["process/attach"](params, context);
      tell({ event: "attach", processId: result.processId, handle: result.handle, role: result.role });
      return result;
    },
    "process/share": async (params, context) => {
      const result = await handlers["process/share"](params, context);
      const { handle, role, ttlMs } = params;
      tell({ event: "share", handle, role, ttlMs });
      return result;
    },
    "process/detach": async (params, context) => {
      const name = named(params.processId);
      const result = await handlers["process/detach"](params, context);
      tell({ event: "detach", ...name });
      return result;
    },
    "command/exec": async (params, context) => {
      const { argv, cwd, tty } = params;
      const result = await handlers["command/exec"](params, context).catch((error: unknown) =>
        tellRefused("", argv, error),
      );
      const name = { processId: result.sessionId };
      tell({ event: "start", ...name, argv, cwd, tty });
      const process = v0Process(result.sessionId);
      if (process) tellEnd(process, name);
      return result;
    },
    "command/exec/write": async (params, context) => {
      const result = await handlers["command/exec/write"](params, context);
      const { sessionId: processId, chunk } = params;
      const status = result.accepted ? "accepted" : "refused";
      tell({ event: "write", processId, bytes: chunk.length, status });
      return result;
    },
    "command/exec/terminate": (params, context) => {
      tell({ event: "terminate", processId: params.sessionId, mode: "force" });
      return handlers["command/exec/terminate"](params, context);
    },
  };
}
