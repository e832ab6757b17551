import { getErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import { onceEnded } from "../../exec/backend/process-state.ts";
import { ErrorCode, RequestError } from "../../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import { findNetworkLog } from "../network/network-log.ts";
import type { EndedQuestion } from "../network/open-questions.ts";
import type { SessionProcess } from "../session/session-process.ts";
import type { Actor, AuditFields, AuditOutcome } from "./audit-event.ts";
import type { AuditLog } from "./audit-log.ts";
import { AUDIT_RULES, type AuditedMethod, type UnauditedMethod } from "./audit-rules.ts";

export interface AuditedCallsDeps {
  log: AuditLog;
  /** Returns the principal and the session of the connection. */
  actor: () => Actor;
  /** Returns a started process of the session, or null. */
  findProcess: (processId: string) => SessionProcess | null;
  /** Returns a v0 process, or null if it is unknown or has exited. */
  findV0Process: (sessionId: string) => HostProcess | null;
}

/** Records the outcome of each audited call of one connection. */
export class AuditedCalls {
  readonly #deps: AuditedCallsDeps;

  constructor(deps: AuditedCallsDeps) {
    this.#deps = deps;
  }

  /** Runs a call and records its outcome. Rejects without running it if the log cannot be written. */
  async run<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    call: () => Promise<ResultOf<M>>,
  ): Promise<ResultOf<M>> {
    const rule: AuditedMethod<M> | UnauditedMethod = AUDIT_RULES[method];
    if ("unaudited" in rule) return call();
    this.#deps.log.requireWritable(method);
    // Before the call, which may remove the process.
    const target = this.#withHandle(rule.target(params));
    let result: ResultOf<M>;
    try {
      result = await call();
    } catch (error) {
      const reason = hide(errorMessage(error), rule.hidden?.(params) ?? []);
      this.#record(method, target, outcomeOf(error), reason);
      throw error;
    }
    const { refusal, ...fields } = rule.result?.(result) ?? {};
    const known = this.#withHandle({ ...target, ...fields });
    this.#record(method, known, refusal === undefined ? "allowed" : "refused", refusal);
    this.#recordEnd(method, known);
    return result;
  }

  #record(event: MethodName, fields: AuditFields, outcome: AuditOutcome, reason?: string): void {
    this.#deps.log.record(this.#deps.actor(), { event, outcome, ...fields, reason });
  }

  #withHandle(fields: AuditFields): AuditFields {
    const { processId, handle, ...rest } = fields;
    if (processId === undefined || handle !== undefined) return fields;
    return { processId, handle: this.#deps.findProcess(processId)?.handle, ...rest };
  }

  #recordEnd(method: MethodName, { processId = "", handle }: AuditFields): void {
    const { findProcess, findV0Process, log } = this.#deps;
    const isV0 = method === "command/exec";
    if (!isV0 && method !== "process/start") return;
    const process = isV0 ? findV0Process(processId) : findProcess(processId)?.process;
    if (!process) return;
    recordNetwork(log, process, { processId, handle });
    recordProcessEnd(log, process, { processId, handle });
  }
}

/** Records each network target of a process once per decision. The line of the start names the principal. */
function recordNetwork(log: AuditLog, process: HostProcess, identity: Pick<AuditFields, "processId" | "handle">): void {
  findNetworkLog(process)?.listen(({ decision, reason, protocol, host, port }) => {
    const outcome = decision === "allow" ? "allowed" : "refused";
    log.record(null, {
      event: "process/network",
      outcome,
      ...identity,
      target: `${host}:${port}`,
      mode: protocol,
      reason,
    });
  });
}

/** Records the outcome of a network question. The line of `network/answer` names the session of the user. */
export function recordQuestion(log: AuditLog, ended: EndedQuestion): void {
  const { processId, handle, host, port, protocol, isAllowed, reason } = ended;
  const outcome = isAllowed ? "allowed" : "refused";
  const fields = { processId, handle, target: `${host}:${port}`, mode: protocol };
  log.record(null, { event: "process/question", outcome, ...fields, reason });
}

/**
 * Records the end of a process when it happens. The line has no actor: the line of the start names the principal, and the
 * cause of the end is unknown here.
 */
export function recordProcessEnd(
  log: AuditLog,
  process: HostProcess,
  identity: Pick<AuditFields, "processId" | "handle">,
): void {
  onceEnded(process, () => {
    const { exitCode = null, signal = null, reason = "failed" } = process.log.exit ?? {};
    log.record(null, { event: "process/ended", ...identity, exitCode, signal, reason });
  });
}

/** A system error means that the server tried; any other error of a request is a decision of the server. */
function outcomeOf(error: unknown): AuditOutcome {
  const isDecision =
    error instanceof RequestError &&
    error.code !== ErrorCode.internal &&
    error.code !== ErrorCode.notFound &&
    getErrorCode(error.cause) === null;
  return isDecision ? "refused" : "failed";
}

/** Removes secrets from a reason, the longest first, because one may contain another. */
function hide(reason: string, secrets: readonly (string | undefined)[]): string {
  const found = secrets.filter((secret) => secret !== undefined && secret !== "");
  return found
    .sort((a = "", b = "") => b.length - a.length)
    .reduce<string>((text, secret = "") => text.replaceAll(secret, "…"), reason);
}
