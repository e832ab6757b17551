import { ModelError } from "../../agent/model-error.ts";
import { TooManyCallsError } from "../../agent/turn.ts";
import type { TokenUsage } from "../../agent/usage.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { Claim } from "../ledger/job-ledger.ts";

/** Works on one row: one attempt, with what came of it. */
export type RowAgent = (claim: Claim, signal: AbortSignal) => Promise<EndedAttempt>;

/** How an attempt ended. */
export type RowOutcome =
  /** The ledger has the result; this is the row as it stands there. */
  | { type: "reported"; item: ItemRecord; usage: TokenUsage; stop: boolean }
  /** `final`: another attempt would go the same way. */
  | {
      type: "failed";
      errorClass: ErrorClass;
      message: string;
      usage: TokenUsage;
      final: boolean;
      /** Set when the API took the request for a wrong one, which other rows' requests may be too. */
      refusal?: Refusal | undefined;
    }
  /** The API took no request of this row, however often it was asked. */
  | {
      type: "exhausted";
      errorClass: "rate_limit" | "transport";
      message: string;
      usage: TokenUsage;
      /** It took none of any other row either. */
      apiAway: boolean;
    }
  /** Nobody's requests will be taken until a person acts. */
  | { type: "wall"; message: string; usage: TokenUsage }
  | { type: "interrupted"; usage: TokenUsage }
  /** The machine its commands ran on is gone; the row has to begin anew, through no fault of its own. */
  | { type: "hostLost"; message: string; usage: TokenUsage }
  /** Somebody else has the row now. */
  | { type: "superseded" };

/** How the API refused a request. */
export interface Refusal {
  status: number;
  code: string;
}

/** What an attempt leaves behind besides its outcome: what was said in it, as JSON text. */
export type EndedAttempt = RowOutcome & { transcript?: string | undefined };

/** What an error of the model's API, or of the turn, says about the row. */
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
