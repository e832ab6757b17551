import { ModelError } from "../../agent/api/model-error.ts";
import type { TokenUsage } from "../../agent/token-usage.ts";
import { ModelCallLimitError } from "../../agent/turn.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { ItemLease } from "../ledger/job-ledger.ts";

/** Executes one attempt and returns its outcome. */
export type RowAgent = (lease: ItemLease, signal: AbortSignal) => Promise<EndedAttempt>;

/** How an attempt ended. */
export type RowOutcome =
  /** The ledger stored the result. `item` is the stored row. */
  | { type: "reported"; item: ItemRecord; usage: TokenUsage; stop: boolean }
  /** `final`: another attempt would fail the same way. */
  | {
      type: "failed";
      errorClass: ErrorClass;
      message: string;
      usage: TokenUsage;
      final: boolean;
      /** Set if the API rejected the request as invalid; requests of other rows may be invalid too. */
      refusal?: ApiRejection | undefined;
    }
  /** The API answered no call for this row, after all retries. */
  | {
      type: "exhausted";
      errorClass: "rate_limit" | "transport";
      message: string;
      usage: TokenUsage;
      /** Whether the API answered no other row either. */
      isOutage: boolean;
    }
  /** The API rejects every request until the user acts. */
  | { type: "blocked"; message: string; usage: TokenUsage }
  | { type: "interrupted"; usage: TokenUsage }
  /** The host of its commands was lost. The row restarts, and the attempt does not count. */
  | { type: "hostLost"; message: string; usage: TokenUsage }
  /** Another attempt or process has the row now. */
  | { type: "superseded" };

/** A rejection by the API. */
export interface ApiRejection {
  status: number;
  code: string;
}

/** The outcome of an attempt with its transcript as JSON text. */
export type EndedAttempt = RowOutcome & { transcript?: string | undefined };

/** Converts an error of the model API, or of the turn, to an outcome. */
export function outcomeOfError(error: Error, usage: TokenUsage): RowOutcome {
  const { message } = error;
  const failed = (errorClass: ErrorClass, text: string, final = false): RowOutcome => ({
    type: "failed",
    errorClass,
    message: text,
    usage,
    final,
  });
  if (error instanceof ModelCallLimitError) {
    return failed("no_report", `worker made no accepted report: ${message}`);
  }
  if (!(error instanceof ModelError)) return failed("tool", message);
  switch (error.kind) {
    case "quota":
    case "auth":
      return { type: "blocked", message, usage };
    case "rate_limit":
    case "overloaded":
      return { type: "exhausted", errorClass: "rate_limit", message, usage, isOutage: error.isOutage };
    case "server":
    case "transport":
      return { type: "exhausted", errorClass: "transport", message, usage, isOutage: error.isOutage };
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
