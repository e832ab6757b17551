import { ModelError } from "../../agent/api/model-error.ts";
import type { TokenUsage } from "../../agent/token-usage.ts";
import { TooManyCallsError } from "../../agent/turn.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { Claim } from "../ledger/job-ledger.ts";

/** Makes one attempt at a row and returns how it ended. */
export type RowAgent = (claim: Claim, signal: AbortSignal) => Promise<EndedAttempt>;

/** How an attempt ended. */
export type RowOutcome =
  /** The ledger has the result; this is the row as it stands there. */
  | { type: "reported"; item: ItemRecord; usage: TokenUsage; stop: boolean }
  /** `final`: another attempt would fail the same way. */
  | {
      type: "failed";
      errorClass: ErrorClass;
      message: string;
      usage: TokenUsage;
      final: boolean;
      /** Set when the API refused the request as wrong; the requests of other rows may be wrong too. */
      refusal?: Refusal | undefined;
    }
  /** The API accepted no request of this row, after all retries. */
  | {
      type: "exhausted";
      errorClass: "rate_limit" | "transport";
      message: string;
      usage: TokenUsage;
      /** The API accepted none of any other row either. */
      apiAway: boolean;
    }
  /** The API will refuse every request until a person acts. */
  | { type: "wall"; message: string; usage: TokenUsage }
  | { type: "interrupted"; usage: TokenUsage }
  /** The host its commands ran on is gone; the row has to start again, through no fault of its own. */
  | { type: "hostLost"; message: string; usage: TokenUsage }
  /** Another attempt or process has the row now. */
  | { type: "superseded" };

/** How the API refused a request. */
export interface Refusal {
  status: number;
  code: string;
}

/** The outcome of an attempt with its transcript as JSON text. */
export type EndedAttempt = RowOutcome & { transcript?: string | undefined };

/** Maps an error of the model's API, or of the turn, to an outcome of the row. */
export function outcomeOfError(error: Error, usage: TokenUsage): RowOutcome {
  const { message } = error;
  const failed = (errorClass: ErrorClass, text: string, final = false): RowOutcome => ({
    type: "failed",
    errorClass,
    message: text,
    usage,
    final,
  });
  if (error instanceof TooManyCallsError) {
    return failed("no_report", `worker made no accepted report: ${message}`);
  }
  if (!(error instanceof ModelError)) return failed("tool", message);
  switch (error.kind) {
    case "quota":
    case "auth":
      return { type: "wall", message, usage };
    case "rate_limit":
    case "overloaded":
      return { type: "exhausted", errorClass: "rate_limit", message, usage, apiAway: error.apiAway };
    case "server":
    case "transport":
      return { type: "exhausted", errorClass: "transport", message, usage, apiAway: error.apiAway };
    case "context_length":
    case "refused":
      return failed("refused", message, true);
    case "invalid_request": {
      const { status, code = "" } = error;
      const refusal = status === undefined ? undefined : { status, code };
      return { type: "failed", errorClass: "refused", message, usage, final: true, refusal };
    }
  }
}
