import { abortable, onAbort } from "../../async/abort.ts";
import { errorMessage } from "../../base/error-message.ts";
import { printableLine } from "../../base/text/printable-text.ts";
import { normalizeHost } from "../../protocol/network/domain-pattern.ts";
import {
  type AskConsole,
  MAX_REASON_BYTES,
  type NetworkAnswer,
  type NetworkRequest,
} from "../../protocol/network/network-schemas.ts";
import type { ApprovalAnswer, ApprovalGate, ApprovalRequest, PromptCaller } from "../policy/approval.ts";
import { askBoth } from "./console-answers.ts";
import { decideHost, type ManagedNetwork } from "./network-rules.ts";
import { formatTarget } from "./network-target.ts";

/** Maximum targets of a process whose answers are remembered, because a process may request any number of hosts. */
const MAX_SETTLED_TARGETS = 1000;

/** A process whose network requests need decisions. */
export interface AskingProcess {
  network: ManagedNetwork;
  /** The approved command of the process. */
  command: ApprovalRequest;
  /** Identifies the caller that started it. An answer for the session applies to this caller alone. */
  caller: object | undefined;
  /** Asks the user, unless `isKnown` returns true when the prompt is due. Rejects if `signal` aborts. */
  ask: (request: ApprovalRequest, signal: AbortSignal, isKnown: () => boolean) => Promise<ApprovalAnswer>;
}

/** Answers of users that apply to all processes of one set of tools. */
export class NetworkAnswers {
  readonly #gate: ApprovalGate;
  readonly #onError: (error: unknown) => void;
  readonly #sessions = new WeakMap<object, Set<string>>();
  /** Hosts that the user allowed permanently. */
  readonly #hosts = new Set<string>();

  constructor(gate: ApprovalGate, onError: (error: unknown) => void) {
    this.#gate = gate;
    this.#onError = onError;
  }

  get canRememberHosts(): boolean {
    return this.#gate.canAllowHost;
  }

  covers(caller: object | undefined, { host, port }: Pick<NetworkRequest, "host" | "port">): boolean {
    return this.#hosts.has(host) || (this.#sessions.get(caller ?? this)?.has(formatTarget({ host, port })) ?? false);
  }

  allowForSession(caller: object | undefined, target: Pick<NetworkRequest, "host" | "port">): void {
    const targets = this.#sessions.get(caller ?? this) ?? new Set();
    this.#sessions.set(caller ?? this, targets.add(formatTarget(target)));
  }

  /** Allows a host permanently. If the rules file cannot be written, the host is allowed until these tools close. */
  async allowAlways(host: string): Promise<void> {
    this.#hosts.add(host);
    try {
      await this.#gate.allowHost(host);
    } catch (error) {
      this.#onError(new Error(`allow ${host} permanently: ${errorMessage(error)}`, { cause: error }));
    }
  }
}

/** An open question that all requests to the same target share. */
interface OpenQuestion {
  answer: Promise<NetworkAnswer>;
  waiting: number;
  abort: AbortController;
}

/** Decides about network requests of one process that its proxy does not decide, and asks the user where the rules say `ask`. */
export class NetworkQuestions {
  readonly #process: AskingProcess;
  readonly #answers: NetworkAnswers;
  readonly #open = new Map<string, OpenQuestion>();
  /** Answers that apply to later requests of this process. */
  readonly #settled = new Map<string, NetworkAnswer>();

  constructor(process: AskingProcess, answers: NetworkAnswers) {
    this.#process = process;
    this.#answers = answers;
  }

  /** Targets of open questions, formatted. */
  get openTargets(): string[] {
    return [...this.#open.keys()];
  }

  async decide(given: NetworkRequest, signal: AbortSignal, askConsole?: AskConsole): Promise<NetworkAnswer> {
    const request = { ...given, host: normalizeHost(given.host) };
    const decision = decideHost(this.#process.network, request.host, request.port);
    if (decision === "allow") return { type: "allow" };
    if (decision === "deny") return { type: "deny", reason: "not_allowed" };
    const target = formatTarget(request);
    const known = this.#known(request, target);
    if (known) return known;
    return this.#share(target, request, signal, askConsole);
  }

  #known(request: NetworkRequest, target: string): NetworkAnswer | undefined {
    return this.#answers.covers(this.#process.caller, request) ? { type: "allow" } : this.#settled.get(target);
  }

  /** Joins the open question about this target, or opens one. It is withdrawn if no request waits for it any more. */
  async #share(
    target: string,
    request: NetworkRequest,
    signal: AbortSignal,
    askConsole: AskConsole | undefined,
  ): Promise<NetworkAnswer> {
    const question = this.#open.get(target) ?? this.#openQuestion(target, request, askConsole);
    question.waiting++;
    const stop = onAbort(signal, () => {
      question.waiting--;
      if (question.waiting === 0) question.abort.abort();
    });
    try {
      return await abortable(question.answer, signal);
    } catch {
      // Only the signal rejects this wait: the answer itself never rejects.
      return { type: "deny", reason: "not_allowed" };
    } finally {
      stop();
    }
  }

  #openQuestion(target: string, request: NetworkRequest, askConsole: AskConsole | undefined): OpenQuestion {
    const abort = new AbortController();
    const answer = this.#ask(target, request, abort.signal, askConsole).finally(() => {
      if (this.#open.get(target) === question) this.#open.delete(target);
    });
    const question: OpenQuestion = { answer, waiting: 0, abort };
    this.#open.set(target, question);
    // A new request must not join a withdrawn question.
    onAbort(abort.signal, () => this.#open.delete(target));
    return question;
  }

  async #ask(
    target: string,
    request: NetworkRequest,
    signal: AbortSignal,
    askConsole: AskConsole | undefined,
  ): Promise<NetworkAnswer> {
    const { command, caller, ask } = this.#process;
    const { host, port, protocol } = request;
    const canRemember = this.#answers.canRememberHosts;
    const reason = "no rule allows this host";
    const approval: ApprovalRequest = {
      ...command,
      kind: "network",
      justification: undefined,
      prefixRule: undefined,
      network: { host, port, protocol, canRemember, reason },
    };
    const askUser: PromptCaller = (asked, until = signal) =>
      ask(asked, until, () => this.#answers.covers(caller, request));
    try {
      const asked = askConsole
        ? askBoth(askUser, (until) => askConsole({ reason, canRemember }, until), approval, signal)
        : askUser(approval);
      const answer = await abortable(asked, signal);
      if (answer.type === "refuse") return this.#settle(target, { type: "deny", reason: toReason(answer.reason) });
      const scope = answer.remember?.type;
      if (scope === "session") this.#answers.allowForSession(caller, request);
      if (scope === "always") await this.#answers.allowAlways(host);
      return scope === "process" ? this.#settle(target, { type: "allow" }) : { type: "allow" };
    } catch (error) {
      return { type: "deny", reason: signal.aborted ? "not_allowed" : toReason(errorMessage(error)) };
    }
  }

  #settle(target: string, answer: NetworkAnswer): NetworkAnswer {
    if (this.#settled.size < MAX_SETTLED_TARGETS) this.#settled.set(target, answer);
    return answer;
  }
}

/** Fits a reason to the limits of the wire: one line of at most 1024 bytes. */
function toReason(text: string): string {
  const line = printableLine(text);
  return Buffer.byteLength(line) <= MAX_REASON_BYTES ? line : Buffer.from(line).subarray(0, 1000).toString("utf8");
}
