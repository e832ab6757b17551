import { errorMessage } from "../../base/error-message.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { Actor, AuditEvent, AuditedProcess, AuditLog } from "../observability/audit-log.ts";
import { onceEnded } from "../session/process-state.ts";
import type { SessionProcess } from "../session/session-process.ts";
import type { Handler, Handlers } from "./handler-types.ts";

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
  const { log, actor, findProcess, findV0Process } = deps;
  const record = (event: AuditEvent) => log.write(actor(), event);
  const named = (processId: string): AuditedProcess => ({
    processId,
    handle: findProcess(processId)?.handle,
  });

  /** Records a request before it is handled, even if it is then rejected. */
  const recordRequest =
    <M extends MethodName>(method: M, describe: (params: ParamsOf<M>) => AuditEvent): Handler<M> =>
    (params, context) => {
      record(describe(params));
      return handlers[method](params, context);
    };

  /** Records a successful request. `describe` is called before the request, which may remove the process. */
  const recordResult =
    <M extends MethodName>(
      method: M,
      describe: (params: ParamsOf<M>) => (result: ResultOf<M>) => AuditEvent,
    ): Handler<M> =>
    async (params, context) => {
      const describeResult = describe(params);
      const result = await handlers[method](params, context);
      record(describeResult(result));
      return result;
    };

  /**
   * Records a start and the end of its process, or the refusal. The line of the end has no actor: the start line names
   * the principal, and the cause of the end is unknown here.
   */
  const recordStart =
    <M extends "process/start" | "command/exec">(
      method: M,
      refusedId: (params: ParamsOf<M>) => string,
      find: (result: ResultOf<M>) => { name: AuditedProcess; process: HostProcess | null | undefined },
    ): Handler<M> =>
    async (params, context) => {
      const { argv, cwd, tty } = params;
      const result = await handlers[method](params, context).catch((error: unknown) => {
        const reason = errorMessage(error);
        record({ event: "start-refused", processId: refusedId(params), argv, reason });
        throw error;
      });
      const { name, process } = find(result);
      record({ event: "start", ...name, argv, cwd, tty });
      if (process)
        onceEnded(process, () => {
          const { exitCode = null, signal = null, reason = "failed" } = process.log.exit ?? {};
          log.write(null, { event: "end", ...name, exitCode, signal, reason });
        });
      return result;
    };

  return {
    ...handlers,
    initialize: recordResult("initialize", ({ resumeSessionId, takeOver }) => () => {
      const resumed = takeOver ? "taken over" : "resumed";
      return { event: "session", change: resumeSessionId === undefined ? "opened" : resumed };
    }),
    "process/start": recordStart(
      "process/start",
      ({ processId }) => processId,
      ({ processId }) => ({ name: named(processId), process: findProcess(processId)?.process }),
    ),
    "process/write": recordResult("process/write", ({ processId, chunk }) => {
      const name = named(processId);
      return ({ status }) => ({ event: "write", ...name, bytes: chunk.length, status });
    }),
    "process/closeStdin": recordResult("process/closeStdin", ({ processId }) => {
      const name = named(processId);
      return ({ status }) => ({ event: "close-stdin", ...name, status });
    }),
    "process/signal": recordRequest("process/signal", ({ processId, signal }) => ({
      event: "signal",
      ...named(processId),
      signal,
    })),
    "process/terminate": recordRequest("process/terminate", ({ processId, mode }) => ({
      event: "terminate",
      ...named(processId),
      mode: mode?.type ?? "force",
    })),
    "process/kill": recordRequest("process/kill", ({ handle, signal, mode }) =>
      signal === undefined
        ? { event: "terminate", handle, mode: mode?.type ?? "force" }
        : { event: "signal", handle, signal },
    ),
    "process/attach": recordResult("process/attach", () => ({ processId, handle, role }) => ({
      event: "attach",
      processId,
      handle,
      role,
    })),
    "process/share": recordResult("process/share", ({ handle, role, ttlMs }) => () => ({
      event: "share",
      handle,
      role,
      ttlMs,
    })),
    "process/detach": recordResult("process/detach", ({ processId }) => {
      const name = named(processId);
      return () => ({ event: "detach", ...name });
    }),
    "command/exec": recordStart(
      "command/exec",
      () => "",
      ({ sessionId }) => ({ name: { processId: sessionId }, process: findV0Process(sessionId) }),
    ),
    "command/exec/write": recordResult(
      "command/exec/write",
      ({ sessionId: processId, chunk }) =>
        ({ accepted }) => ({
          event: "write",
          processId,
          bytes: chunk.length,
          status: accepted ? "accepted" : "refused",
        }),
    ),
    "command/exec/terminate": recordRequest("command/exec/terminate", ({ sessionId: processId }) => ({
      event: "terminate",
      processId,
      mode: "force",
    })),
  };
}
