import { abortable } from "../../async/abort.ts";
import { Watch } from "../../async/watch.ts";
import type { StartParams } from "../../exec/exec-process.ts";
import type { NetworkDecision } from "../../protocol/network/network-schemas.ts";
import type { ApprovalAnswer, ApprovalGate, ApprovalRequest, PromptCaller } from "../policy/approval.ts";
import type { ToolCallContext } from "../tool.ts";
import { type BlockedTargets, NetworkActivity } from "./network-activity.ts";
import { toNetworkProxy } from "./network-launch.ts";
import { type NetworkAnswers, NetworkQuestions } from "./network-questions.ts";
import type { ManagedNetwork } from "./network-rules.ts";

export interface CommandNetworkOptions {
  network: ManagedNetwork;
  /** The approved command. */
  command: ApprovalRequest;
  /** The call that starts the process. */
  call: ToolCallContext;
  gate: ApprovalGate;
  answers: NetworkAnswers;
}

type NetworkParams = Pick<
  StartParams,
  "networkProxy" | "credentials" | "enforceManagedNetwork" | "decideNetwork" | "onNetworkDecision"
>;

/** The managed network of one command: its policy, the questions to the user, and the decisions of its proxy. */
export class CommandNetwork {
  readonly #options: CommandNetworkOptions;
  readonly #questions: NetworkQuestions;
  readonly #activity = new NetworkActivity();
  /** Calls that can ask their user now, the newest last. */
  readonly #callers = new Watch<readonly PromptCaller[]>([]);
  /** Open prompts by caller. */
  readonly #prompts = new Map<PromptCaller, Promise<unknown>>();
  /** Decisions before `listen`. */
  #unreported: NetworkDecision[] = [];
  #listener: ((decision: NetworkDecision) => void) | null = null;

  constructor(options: CommandNetworkOptions) {
    this.#options = options;
    const { network, command, call, answers } = options;
    this.#questions = new NetworkQuestions(
      { network, command, caller: call.caller, ask: (...asked) => this.#ask(...asked) },
      answers,
    );
  }

  /** Fields of the start that enforce the policy. */
  get startParams(): NetworkParams {
    const { network } = this.#options;
    return {
      networkProxy: toNetworkProxy(network),
      credentials: network.credentials?.slice(),
      enforceManagedNetwork: true,
      decideNetwork: (...asked) => this.#questions.decide(...asked),
      onNetworkDecision: (decision) => {
        if (!this.#activity.add(decision)) return;
        if (this.#listener) this.#listener(decision);
        else this.#unreported.push(decision);
      },
    };
  }

  /** Calls `listener` once per target and decision, first for earlier decisions. */
  listen(listener: (decision: NetworkDecision) => void): void {
    this.#listener = listener;
    for (const decision of this.#unreported.splice(0)) listener(decision);
  }

  /** Targets of open questions to the user. */
  get openTargets(): readonly string[] {
    return this.#questions.openTargets;
  }

  takeBlocked(): BlockedTargets {
    return this.#activity.takeBlocked();
  }

  /**
   * Lets questions use the prompt of a call while `wait` runs. The call ends only after its open prompt is answered, because
   * a client drops the prompt of an ended call.
   */
  async withCall<T>({ askCaller, signal }: ToolCallContext, wait: () => Promise<T>): Promise<T> {
    if (!askCaller) return wait();
    this.#callers.set([...this.#callers.value, askCaller]);
    try {
      return await wait();
    } finally {
      this.#callers.set(this.#callers.value.filter((caller) => caller !== askCaller));
      await abortable(this.#prompts.get(askCaller) ?? Promise.resolve(), signal).catch(() => undefined);
    }
  }

  async #ask(request: ApprovalRequest, signal: AbortSignal, isKnown: () => boolean): Promise<ApprovalAnswer> {
    const { call, gate } = this.#options;
    // The policy has its own prompt, for example on a terminal.
    if (!call.askCaller) return gate.ask(request, { signal, isKnown });
    const askCaller = await this.#nextCaller(signal);
    const prompt = gate.ask(request, { signal, askCaller, isKnown });
    const settled = Promise.allSettled([prompt, this.#prompts.get(askCaller)]);
    this.#prompts.set(askCaller, settled);
    void settled.then(() => this.#prompts.get(askCaller) === settled && this.#prompts.delete(askCaller));
    return prompt;
  }

  /** Waits for a call that can ask its user. */
  async #nextCaller(signal: AbortSignal): Promise<PromptCaller> {
    const callers = this.#callers.subscribe();
    for (;;) {
      const caller = callers.current().at(-1);
      if (caller) return caller;
      await callers.changed({ signal });
    }
  }
}
