import { assistantMessage, callItem } from "../../agent/api/conversation-steps.ts";
import type { JsonObject } from "../../agent/api/response-events.ts";
import type { AttemptRecord, ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { REPORT_REMINDER } from "./report-tool.ts";

/**
 * Returns the items that an invalid batch answer adds to the conversation of a row, so that a single call continues
 * from it. Returns an empty list if the last attempt was not a batch, or if its answer cannot be continued.
 */
export async function batchConversation(ledger: JobLedger, item: ItemRecord): Promise<JsonObject[]> {
  if (!item.usage.batched) return [];
  const last = (await ledger.attempts(item.itemId)).at(-1);
  return last ? repairSteps(last) : [];
}

function repairSteps({ outcome, errorClass, usage, transcript }: AttemptRecord): JsonObject[] {
  const isRepairable = errorClass === "schema" || errorClass === "no_report";
  if (outcome !== "retried" || !usage.batched || !isRepairable) return [];
  const steps: JsonObject[] = [];
  let calls = 0;
  let open: { callId: string; tool: string } | null = null;
  for (const entry of transcript) {
    if (entry.type === "said" && entry.text !== "") steps.push(assistantMessage(entry.text));
    if (entry.type === "called") {
      // Every tool call in a conversation needs an output, and only the first call of the report tool got one.
      if (open) break;
      open = { callId: `call_${calls++}`, tool: entry.tool };
      steps.push(callItem(open.callId, entry.tool, entry.arguments));
    }
    if (entry.type === "returned" && open?.tool === entry.tool) {
      steps.push({ type: "function_call_output", call_id: open.callId, output: entry.text });
      return steps;
    }
  }
  if (open || steps.length === 0) return [];
  return [...steps, { type: "message", role: "user", content: [{ type: "input_text", text: REPORT_REMINDER }] }];
}
