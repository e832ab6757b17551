import { isObject, type JsonObject } from "../../agent/response-events.ts";
import type { Tool, ToolDefinition, ToolOutput } from "../../tools/tool.ts";
import type { ResultCheck } from "./result-check.ts";

export const REPORT_TOOL_NAME = "report_agent_job_result";

export interface ReportToolOptions {
  jobId: string;
  itemId: string;
  check: ResultCheck;
  /** Commits the result; false when the row is no longer this attempt's to report. */
  commit(result: JsonObject, stop: boolean): Promise<boolean>;
}

/** What has become of the reports of one attempt. */
export type ReportState =
  | { type: "none" }
  | { type: "accepted" }
  /** The row was finished by someone else, or its time was up. */
  | { type: "superseded" }
  /** The result did not fit; one more try is allowed. */
  | { type: "invalid"; faults: string[]; tries: number };

export interface ReportTool extends Tool {
  readonly state: ReportState;
  /** Nothing that the agent still says can change the row. */
  readonly settled: boolean;
}

/** The repair turn: a result that does not fit may be reported once more. */
const MAX_INVALID_REPORTS = 2;

/** The tool that ends a row. It is made for one attempt and knows which; the first accepted report wins. */
export function createReportTool(options: ReportToolOptions): ReportTool {
  let state: ReportState = { type: "none" };

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

  return {
    definition: DEFINITION,
    call: report,
    get state() {
      return state;
    },
    get settled() {
      return (
        state.type === "accepted" ||
        state.type === "superseded" ||
        (state.type === "invalid" && state.tries >= MAX_INVALID_REPORTS)
      );
    },
  };
}

/** The same for every row. */
const DEFINITION: ToolDefinition = {
  name: REPORT_TOOL_NAME,
  description: "Reports the result of the item you were given. Call it exactly once, then stop.",
  parameters: {
    type: "object",
    properties: {
      job_id: { type: "string", description: "The job id from your message." },
      item_id: { type: "string", description: "The item id from your message." },
      result: { type: "object", description: "The result, in the shape the task asks for." },
      stop: { type: "boolean", description: "True to end the whole job early. Rarely right." },
    },
    required: ["job_id", "item_id", "result"],
    additionalProperties: false,
  },
};

function rejected(reason: string): ToolOutput {
  return { text: JSON.stringify({ accepted: false, reason }), ok: false };
}
