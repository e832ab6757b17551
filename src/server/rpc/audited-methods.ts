import { errorMessage } from "../../base/error-message.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import type { Actor, AuditEvent, AuditedProcess, AuditLog } from "../observability/audit-log.ts";
import { onceEnded } from "../session/process-state.ts";
import type { SessionProcess } from "../session/session-process.ts";
import type { Handlers } from "./handler-types.ts";

export interface AuditedMethodsDeps {
  log: AuditLog;
  /** Returns the principal and the session of the connection. */
  actor: () => Actor;
  /** Returns a started process of the session, or null. */
  findProcess: (processId: string) => SessionProcess | null;
  /** Returns a v0 process, or null if it is unknown or has exited. */
  findV0Process: (sessionId: string) => HostProcess | null;
}

/** Wraps the handlers so that each action on a process writes an audit line. */
export function withAudit(handlers: Handlers, deps: AuditedMethodsDeps): Handlers {
  const recorder = new AuditRecorder(deps);
  const { findProcess, findV0Process } = deps;
  return {
    ...handlers,
    initialize: async (params, context) => {
      const result = await handlers.initialize(params, context);
      const { resumeSessionId, takeOver } = params;
      const resumed = takeOver ? "taken over" : "resumed";
      recorder.record({ event: "session", change: resumeSessionId === undefined ? "opened" : resumed });
      return result;
    },
    "process/start": async (params, context) => {
      const { processId, argv, cwd, tty } = params;
      const result = await handlers["process/start"](params, context).catch((error: unknown) =>
        recorder.recordRefusal(processId, argv, error),
      );
      const name = recorder.identify(processId);
      recorder.record({ event: "start", ...name, argv, cwd, tty });
      const process = findProcess(processId)?.process;
      if (process) recorder.recordEnd(process, name);
      return result;
    },
    "command/exec": async (params, context) => {
      const { argv, cwd, tty } = params;
      const result = await handlers["command/exec"](params, context).catch((error: unknown) =>
        recorder.recordRefusal("", argv, error),
      );
      const name = { processId: result.sessionId };
      recorder.record({ event: "start", ...name, argv, cwd, tty });
      const process = findV0Process(result.sessionId);
      if (process) recorder.recordEnd(process, name);
      return result;
    },
    "process/write": async (params, context) => {
      const name = recorder.identify(params.processId);
      const { status } = await handlers["process/write"](params, context);
      recorder.record({ event: "write", ...name, bytes: params.chunk.length, status });
      return { status };
    },
    "process/closeStdin": async (params, context) => {
      const name = recorder.identify(params.processId);
      const { status } = await handlers["process/closeStdin"](params, context);
      recorder.record({ event: "close-stdin", ...name, status });
      return { status };
    },
    "command/exec/write": async (params, context) => {
      const result = await handlers["command/exec/write"](params, context);
      const { sessionId: processId, chunk } = params;
      const status = result.accepted ? "accepted" : "refused";
      recorder.record({ event: "write", processId, bytes: chunk.length, status });
      return result;
    },
    // Signals and terminations are recorded before they are handled, even if they are then rejected.
    "process/signal": (params, context) => {
      recorder.record({ event: "signal", ...recorder.identify(params.processId), signal: params.signal });
      return handlers["process/signal"](params, context);
    },
    "process/terminate": (params, context) => {
      const mode = params.mode?.type ?? "force";
      recorder.record({ event: "terminate", ...recorder.identify(params.processId), mode });
      return handlers["process/terminate"](params, context);
    },
    "process/kill": (params, context) => {
      const { handle, signal, mode } = params;
      recorder.record(
        signal === undefined
          ? { event: "terminate", handle, mode: mode?.type ?? "force" }
          : { event: "signal", handle, signal },
      );
      return handlers["process/kill"](params, context);
    },
    "command/exec/terminate": (params, context) => {
      recorder.record({ event: "terminate", processId: params.sessionId, mode: "force" });
      return handlers["command/exec/terminate"](params, context);
    },
    "process/attach": async (params, context) => {
      const result = await handlers["process/attach"](params, context);
      const { processId, handle, role } = result;
      recorder.record({ event: "attach", processId, handle, role });
      return result;
    },
    "process/detach": async (params, context) => {
      const name = recorder.identify(params.processId);
      const result = await handlers["process/detach"](params, context);
      recorder.record({ event: "detach", ...name });
      return result;
    },
    "process/share": async (params, context) => {
      const result = await handlers["process/share"](params, context);
      const { handle, role, ttlMs } = params;
      recorder.record({ event: "share", handle, role, ttlMs });
      return result;
    },
  };
}

class AuditRecorder {
  readonly #deps: AuditedMethodsDeps;

  constructor(deps: AuditedMethodsDeps) {
    this.#deps = deps;
  }

  record(event: AuditEvent): void {
    this.#deps.log.write(this.#deps.actor(), event);
  }

  /** Returns the id and the handle of a process. Called before a request that may remove the process. */
  identify(processId: string): AuditedProcess {
    return { processId, handle: this.#deps.findProcess(processId)?.handle };
  }

  recordRefusal(processId: string, argv: readonly string[], error: unknown): never {
    this.record({ event: "start-refused", processId, argv, reason: errorMessage(error) });
    throw error;
  }

  /** The line has no actor: the start line names the principal, and the cause of the end is unknown here. */
  recordEnd(process: HostProcess, name: AuditedProcess): void {
    onceEnded(process, () => {
      const { exitCode = null, signal = null, reason = "failed" } = process.log.exit ?? {};
      this.#deps.log.write(null, { event: "end", ...name, exitCode, signal, reason });
    });
  }
}
