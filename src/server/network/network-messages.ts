import type { StartParams } from "../../exec/exec-process.ts";
import type { NetworkAnswer, NetworkDecision, NetworkRequest } from "../../protocol/network/network-schemas.ts";
import type { SessionClient } from "../session/session-process.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { OpenQuestions } from "./open-questions.ts";

/**
 * Connects the network proxy of one process with the client of its session: questions as `network/policyRequest`, decisions
 * as `network/policyDecision`. Without a connected client, requests are denied and decisions are not sent.
 */
export class NetworkMessages {
  readonly #processId: string;
  readonly #client: () => SessionClient | null;
  /** Resolves after the response to the start, which precedes all messages of the process. */
  readonly #begun = Promise.withResolvers<SharedProcess>();
  readonly #questions: OpenQuestions;
  /** Decisions before `begin`; null afterwards. */
  #early: NetworkDecision[] | null = [];

  constructor(processId: string, client: () => SessionClient | null, questions: OpenQuestions) {
    this.#processId = processId;
    this.#client = client;
    this.#questions = questions;
  }

  /** Returns the callbacks for the backend. */
  get callbacks(): Pick<StartParams, "decideNetwork" | "onNetworkDecision"> {
    return {
      decideNetwork: (request, signal) => this.#decide(request, signal),
      onNetworkDecision: (decision) => this.#onDecision(decision),
    };
  }

  /** Starts sending. Called when the response to the start is queued. */
  begin(shared: SharedProcess): void {
    const early = this.#early ?? [];
    this.#early = null;
    for (const decision of early) this.#send(decision);
    this.#begun.resolve(shared);
  }

  async #decide(request: NetworkRequest, signal: AbortSignal): Promise<NetworkAnswer> {
    const shared = await this.#begun.promise;
    const client = this.#client();
    if (!client) throw new Error("no client is connected");
    const isExtended = client.extensions.size > 0;
    const params = { processId: this.#processId, request };
    return this.#questions.during(shared, request, async () => {
      const call = { method: "network/policyRequest", params } as const;
      return (await client.peer.request(call, { isExtended, signal })).decision;
    });
  }

  #onDecision(decision: NetworkDecision): void {
    if (this.#early) this.#early.push(decision);
    else this.#send(decision);
  }

  #send(decision: NetworkDecision): void {
    const peer = this.#client()?.peer;
    // Best effort: a client that does not read loses decisions, not output.
    if (!peer || peer.isAboveQueueLimit) return;
    peer.notify({ method: "network/policyDecision", params: { processId: this.#processId, ...decision } });
  }
}
