import type { ModelAnswer } from "../../agent/api/model-caller.ts";
import { ModelError } from "../../agent/api/model-error.ts";
import { readArguments } from "../../agent/arguments/function-arguments.ts";
import { asBatched, type TokenUsage } from "../../agent/token-usage.ts";
import type { ErrorClass, ItemRecord } from "../job.ts";
import type { AttemptFailure, Report } from "../ledger/job-ledger.ts";
import { createReportTool, REPORT_TOOL_NAME } from "../row/report-tool.ts";
import type { ResultCheck } from "../row/result-check.ts";
import type { CommonPrompt } from "../row/row-request.ts";
import { Transcript } from "../row/transcript.ts";

/** What an answer from a batch means for its row. */
export type BatchVerdict =
  | { type: "report"; report: Report }
  /** The model answered, but without a valid report: a single call may do better. */
  | { type: "unusable"; failure: AttemptFailure }
  /** There is no answer: the request was not processed, or failed. */
  | { type: "none"; usage: TokenUsage };

/** Judges an answer by the rules of a row agent; here the model cannot be asked to correct it. */
export async function judgeBatchAnswer(
  answer: ModelAnswer | ModelError,
  item: ItemRecord,
  job: { id: string; common: CommonPrompt; check: ResultCheck },
): Promise<BatchVerdict> {
  if (answer instanceof ModelError) return judgeError(answer);
  const usage = asBatched(answer.usage);
  const transcript = new Transcript();
  transcript.answered(answer);
  const taken: { report: Pick<Report, "result" | "stop"> | null } = { report: null };
  const tool = createReportTool({
    jobId: job.id,
    itemId: item.itemId,
    definition: job.common.report,
    check: job.check,
    commit: async (result, stop) => {
      taken.report = { result: JSON.stringify(result), stop };
      return true;
    },
  });
  for (const said of answer.items) {
    if (tool.settled) break;
    if (said.type === "message" && said.refusal === null) await tool.takeWords(said.text);
    if (said.type !== "functionCall" || said.name !== REPORT_TOOL_NAME) continue;
    const args = readArguments(said.name, said.arguments);
    const output = args.type === "mistaken" ? { text: args.message, ok: false } : await tool.call(args.value);
    transcript.returned(said.name, output);
  }
  if (taken.report) {
    return { type: "report", report: { ...taken.report, usage, transcript: transcript.json } };
  }
  const { errorClass, message } = whyUnusable(answer, tool.state);
  return { type: "unusable", failure: { errorClass, message, usage, transcript: transcript.json } };
}

function whyUnusable(
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

/** A single call will get the same refusal, and handles it. */
function judgeError(error: ModelError): BatchVerdict {
  return { type: "none", usage: asBatched(error.usage) };
}
