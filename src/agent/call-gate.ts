import type { ResponseHeaders } from "./api/model-api.ts";
import type { ModelError } from "./api/model-error.ts";
import type { TokenUsage } from "./token-usage.ts";

/** Every request to the API passes here, so that one place can hold all of them back. */
export interface CallGate {
  /** Resolves when a request may be sent. `estimateTokens` is asked only by a gate that counts tokens. */
  enter(estimateTokens: () => number, signal: AbortSignal): Promise<CallPermit>;
}

/** The right to have one request under way. */
export interface CallPermit {
  /** The API said yes; its headers may tell how much is left. */
  accepted(headers: ResponseHeaders): void;
  /** Gives the permit back, exactly once. */
  leave(end: CallEnd): void;
}

export type CallEnd =
  | { type: "answered"; usage: TokenUsage }
  | { type: "failed"; error: ModelError }
  /** The caller gave up; it says nothing about the API. */
  | { type: "abandoned" };

const OPEN_PERMIT: CallPermit = { accepted: () => undefined, leave: () => undefined };

/** Lets everything pass. */
export const openGate: CallGate = { enter: async () => OPEN_PERMIT };
