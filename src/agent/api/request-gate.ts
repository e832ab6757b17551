import type { TokenUsage } from "../token-usage.ts";
import type { ResponseHeaders } from "./model-api.ts";
import type { ModelError } from "./model-error.ts";

/** Admission control of all requests to the API. */
export interface RequestGate {
  /** Resolves when a request may be sent. Only a gate that limits tokens calls `estimateTokens`. */
  enter(estimateTokens: () => number, signal: AbortSignal): Promise<RequestPermit>;
}

/** Permission for one request in flight. */
export interface RequestPermit {
  /** Called when the API accepts the request. Its headers may contain the remaining quota. */
  onAccepted(headers: ResponseHeaders): void;
  /** Releases the permit. Call exactly once. */
  release(end: RequestOutcome): void;
}

export type RequestOutcome =
  | { type: "answered"; usage: TokenUsage }
  | { type: "failed"; error: ModelError }
  /** The caller aborted, which says nothing about the API. */
  | { type: "abandoned" };

const OPEN_PERMIT: RequestPermit = { onAccepted: () => undefined, release: () => undefined };

/** A gate without limits. */
export const unlimitedGate: RequestGate = { enter: async () => OPEN_PERMIT };
