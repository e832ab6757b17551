import { assistantMessage, callItem } from "../../agent/api/conversation-steps.ts";
import type { JsonObject } from "../../agent/api/response-events.ts";
import type { AttemptRecord, ItemRecord } from "../job.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import { NUDGE } from "./report-tool.ts";

/**
 * What an answer from a batch adds to a row's conversation, so that a single call continues from an invalid answer instead of
 * starting again. Empty for a row whose last attempt was not made by a batch, or left nothing to continue from.
 */
export async function batchRepair(ledger: JobLedger, item: ItemRecord): Promise<JsonObject[]> {
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
  return [...steps, { type: "message", role: "user", content: [{ type: "input_text", text: NUDGE }] }];
}
