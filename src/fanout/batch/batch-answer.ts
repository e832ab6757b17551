import type { ModelAnswer } from "../../agent/api/model-caller.ts";
import { ModelError } from "../../agent/api/model-error.ts";
import { parseToolArguments } from "../../agent/arguments/function-arguments.ts";
import { asBatched, type TokenUsage } from "../../agent/token-usage.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { AttemptFailure, Report } from "../ledger/job-ledger.ts";
import { createReportTool, REPORT_TOOL_NAME } from "../row/report-tool.ts";
import type { ResultCheck } from "../row/result-check.ts";
import type { CommonPrompt } from "../row/row-request.ts";
import { Transcript } from "../row/transcript.ts";

/** The effect of a batch result on its row. */
export type BatchResultAction =
  | { type: "report"; report: Report }
  /** The answer contains no valid report; a single call may succeed. */
  | { type: "unusable"; failure: AttemptFailure }
  /** The request has no answer: it failed or was not processed. */
  | { type: "none"; usage: TokenUsage };

/** Classifies a batch result by the rules of a row agent. A batch has no repair turn. */
export async function classifyBatchResult(
  answer: ModelAnswer | ModelError,
  item: ItemRecord,
  job: { id: string; common: CommonPrompt; check: ResultCheck },
): Promise<BatchResultAction> {
  // A single call repeats the failed request: it gets the same rejection and handles it.
  if (answer instanceof ModelError) return { type: "none", usage: asBatched(answer.usage) };
  const usage = asBatched(answer.usage);
  const transcript = new Transcript();
  transcript.addAnswer(answer);
  const accepted: { report: Pick<Report, "result" | "stop"> | null } = { report: null };
  const tool = createReportTool({
    jobId: job.id,
    itemId: item.itemId,
    definition: job.common.report,
    check: job.check,
    commit: async (result, stop) => {
      accepted.report = { result: JSON.stringify(result), stop };
      return true;
    },
  });
  for (const answerItem of answer.items) {
    if (tool.isFinished) break;
    if (answerItem.type === "message" && answerItem.refusal === null) await tool.reportFromText(answerItem.text);
    if (answerItem.type !== "functionCall" || answerItem.name !== REPORT_TOOL_NAME) continue;
    const args = parseToolArguments(answerItem.name, answerItem.arguments);
    const output = args.type === "mistaken" ? { text: args.message, ok: false } : await tool.call(args.value);
    transcript.addToolOutput(answerItem.name, output);
  }
  if (accepted.report) {
    return { type: "report", report: { ...accepted.report, usage, transcript: transcript.json } };
  }
  const { errorClass, message } = rejectionReason(answer, tool.state);
  return { type: "unusable", failure: { errorClass, message, usage, transcript: transcript.json } };
}

function rejectionReason(
  answer: ModelAnswer,
  state: ReturnType<typeof createReportTool>["state"],
): { errorClass: ErrorClass; message: string } {
  if (state.type === "invalid") {
    return { errorClass: "schema", message: `result does not fit the schema: ${state.faults.join("; ")}` };
  }
  const refusal = answer.items.find((item) => item.type === "message" && item.refusal !== null);
  if (refusal?.type === "message") {
    return { errorClass: "refused", message: `the model refused: ${refusal.refusal}` };
  }
  return { errorClass: "no_report", message: "the batch's answer was not a report" };
}
