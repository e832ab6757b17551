import { extractJson } from "../../agent/api/chat-completions-decoder.ts";
import type { JsonObject } from "../../agent/api/response-events.ts";
import { parseLosslessJson } from "../../base/lossless-json.ts";
import { isObject } from "../../base/type-guards.ts";
import type { Tool, ToolDefinition, ToolOutput } from "../../tools/tool.ts";
import type { ResultCheck } from "./result-check.ts";
import { reportParameters } from "./result-schema.ts";

export const REPORT_TOOL_NAME = "report_agent_job_result";

export interface ReportToolOptions {
  jobId: string;
  itemId: string;
  definition: ToolDefinition;
  check: ResultCheck;
  /** Commits the result. Returns false if this attempt no longer holds the row. */
  commit(result: JsonObject, stop: boolean): Promise<boolean>;
}

/** State of the reports of one attempt. */
export type ReportState =
  | { type: "none" }
  | { type: "accepted" }
  /** Another attempt finished the row, or the row timed out. */
  | { type: "superseded" }
  /** The result did not match the schema. One repair is allowed. */
  | { type: "invalid"; faults: string[]; tries: number };

export interface ReportTool extends Tool {
  readonly state: ReportState;
  /** Whether the agent can no longer change the outcome of the row. */
  readonly isFinished: boolean;
  /**
   * Processes an answer without a tool call. A JSON object counts as a report, or as its result. Returns the
   * reply to the agent, or null if the row is finished or the agent had a reply before.
   */
  reportFromText(text: string): Promise<string | null>;
}

/** Allows one repair: the agent may report again after an invalid result. */
const MAX_INVALID_REPORTS = 2;

/** Creates the report tool of one attempt. The first accepted report finishes the row. */
export function createReportTool(options: ReportToolOptions): ReportTool {
  let state: ReportState = { type: "none" };
  let isReminded = false;

  const report = async (args: unknown): Promise<ToolOutput> => {
    const { job_id: jobId, item_id: itemId, result, stop } = isObject(args) ? args : {};
    if (typeof jobId !== "string" || typeof itemId !== "string") {
      return { text: "job_id and item_id must be strings", ok: false };
    }
    if (stop !== undefined && stop !== null && typeof stop !== "boolean") {
      return { text: "stop must be a boolean", ok: false };
    }
    if (!isObject(result)) return { text: "result must be a JSON object", ok: false };
    if (state.type === "accepted")
      return rejectionOutput("this item has already been reported; the first report counts");
    if (jobId.trim() !== options.jobId) return rejectionOutput(`your job is ${options.jobId}`);
    if (itemId.trim() !== options.itemId.trim()) return rejectionOutput(`your item is ${options.itemId}`);
    const faults = options.check(result);
    if (faults.length > 0) {
      const tries = state.type === "invalid" ? state.tries + 1 : 1;
      state = { type: "invalid", faults, tries };
      return { text: `result does not fit the expected schema:\n${faults.join("\n")}`, ok: false };
    }
    if (!(await options.commit(result, stop === true))) {
      state = { type: "superseded" };
      return rejectionOutput("this item is finished or has been given to another worker");
    }
    state = { type: "accepted" };
    return { text: JSON.stringify({ accepted: true }), ok: true };
  };

  const isFinal = () =>
    state.type === "accepted" ||
    state.type === "superseded" ||
    (state.type === "invalid" && state.tries >= MAX_INVALID_REPORTS);

  return {
    definition: options.definition,
    call: report,
    async reportFromText(text) {
      const args = parseTextReport(text, options);
      const output = args === null ? null : await report(args);
      if (isReminded || isFinal()) return null;
      isReminded = true;
      return output === null ? REPORT_REMINDER : `${output.text}\n${REPORT_REMINDER}`;
    },
    get state() {
      return state;
    },
    get isFinished() {
      return isFinal();
    },
  };
}

/** Returns the tool definition, which is equal for all rows of a job. */
export function reportDefinition(schema: JsonObject | null): ToolDefinition {
  return {
    name: REPORT_TOOL_NAME,
    description: "Reports the result of the item you were given. Call it exactly once, then stop.",
    ...reportParameters(schema),
  };
}

/** Reply to an answer without a report. */
export const REPORT_REMINDER = `Your answer was not a report, so it does not count. Call \`${REPORT_TOOL_NAME}\` now, with your result.`;

/** Parses a report that was written as text instead of a tool call. Returns null if the text is not a JSON object. */
function parseTextReport(
  text: string,
  { jobId, itemId }: Pick<ReportToolOptions, "jobId" | "itemId">,
): JsonObject | null {
  const json = extractJson(text);
  const value = json === null ? null : parseLosslessJson(json);
  if (!isObject(value)) return null;
  return isObject(value.result) && "item_id" in value
    ? { job_id: jobId, ...value }
    : { job_id: jobId, item_id: itemId, result: value };
}

function rejectionOutput(reason: string): ToolOutput {
  return { text: JSON.stringify({ accepted: false, reason }), ok: false };
}
