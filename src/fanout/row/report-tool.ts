import { jsonIn } from "../../agent/api/chat-completions-decoder.ts";
import { isObject, type JsonObject } from "../../agent/api/response-events.ts";
import { parseExactJson } from "../../base/lossless-json.ts";
import type { Tool, ToolDefinition, ToolOutput } from "../../tools/tool.ts";
import type { ResultCheck } from "./result-check.ts";
import { reportParameters } from "./result-schema.ts";

export const REPORT_TOOL_NAME = "report_agent_job_result";

export interface ReportToolOptions {
  jobId: string;
  itemId: string;
  definition: ToolDefinition;
  check: ResultCheck;
  /** Commits the result; false when the row is no longer this attempt's to report. */
  commit(result: JsonObject, stop: boolean): Promise<boolean>;
}

/** State of the reports of one attempt. */
export type ReportState =
  | { type: "none" }
  | { type: "accepted" }
  /** Another attempt has finished the row, or its time was up. */
  | { type: "superseded" }
  /** The result did not fit; one more try is allowed. */
  | { type: "invalid"; faults: string[]; tries: number };

export interface ReportTool extends Tool {
  readonly state: ReportState;
  /** True when nothing the agent says can change the row any more. */
  readonly settled: boolean;
  /**
   * Takes a text answer. A JSON object counts as a report or its result; null when it settles the row. Otherwise returns what
   * to tell the agent; it is told only once.
   */
  takeWords(words: string): Promise<string | null>;
}

/** Allows one repair turn: a result that does not fit the schema may be reported once more. */
const MAX_INVALID_REPORTS = 2;

/** The tool that ends a row. It is created for one attempt; the first accepted report wins. */
export function createReportTool(options: ReportToolOptions): ReportTool {
  let state: ReportState = { type: "none" };
  let nudged = false;

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
      return rejected("this item has already been reported; the first report stands");
    if (jobId.trim() !== options.jobId) return rejected(`your job is ${options.jobId}`);
    if (itemId.trim() !== options.itemId.trim()) return rejected(`your item is ${options.itemId}`);
    const faults = options.check(result);
    if (faults.length > 0) {
      const tries = state.type === "invalid" ? state.tries + 1 : 1;
      state = { type: "invalid", faults, tries };
      return { text: `result does not fit the expected schema:\n${faults.join("\n")}`, ok: false };
    }
    if (!(await options.commit(result, stop === true))) {
      state = { type: "superseded" };
      return rejected("this item is finished or has been given to another worker");
    }
    state = { type: "accepted" };
    return { text: JSON.stringify({ accepted: true }), ok: true };
  };

  const isSettled = () =>
    state.type === "accepted" ||
    state.type === "superseded" ||
    (state.type === "invalid" && state.tries >= MAX_INVALID_REPORTS);

  return {
    definition: options.definition,
    call: report,
    async takeWords(words) {
      const args = reportInWords(words, options);
      const output = args === null ? null : await report(args);
      if (nudged || isSettled()) return null;
      nudged = true;
      return output === null ? NUDGE : `${output.text}\n${NUDGE}`;
    },
    get state() {
      return state;
    },
    get settled() {
      return isSettled();
    },
  };
}

/** The tool definition that the model sees; the same for every row of a job. */
export function reportDefinition(schema: JsonObject | null): ToolDefinition {
  return {
    name: REPORT_TOOL_NAME,
    description: "Reports the result of the item you were given. Call it exactly once, then stop.",
    ...reportParameters(schema),
  };
}

/** The message to an agent that answered with text instead of a report. */
export const NUDGE = `Your answer was not a report, so it does not count. Call \`${REPORT_TOOL_NAME}\` now, with your result.`;

/** The arguments of a report that was written as text instead of a tool call; null where the text is none. */
function reportInWords(
  words: string,
  { jobId, itemId }: Pick<ReportToolOptions, "jobId" | "itemId">,
): JsonObject | null {
  const json = jsonIn(words);
  const value = json === null ? null : parseExactJson(json);
  if (!isObject(value)) return null;
  return isObject(value.result) && "item_id" in value
    ? { job_id: jobId, ...value }
    : { job_id: jobId, item_id: itemId, result: value };
}

function rejected(reason: string): ToolOutput {
  return { text: JSON.stringify({ accepted: false, reason }), ok: false };
}
