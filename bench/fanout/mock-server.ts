/**
 * The model of the benchmark. It runs in a separate process, so that its work does not count for a contestant. It
 * answers like the original's test server: the main agent spawns once, workers report, and a tool result ends the run.
 */

import {
  answer,
  completed,
  created,
  functionCall,
  inputItems,
  startMockResponses,
} from "../../test/support/models/mock-responses.ts";

export interface MockStats {
  requests: number;
  peakInFlight: number;
  /** Number of different rows in the requests. */
  rows: number;
}

/** Arguments: the delay before each response, and the arguments with which the main agent spawns the job. */
const [latencyText = "0", spawnArguments = "{}"] = process.argv.slice(2);
const latencyMs = Number(latencyText);
let seenMain = false;
let calls = 0;
const rows = new Set<string>();

const mock = await startMockResponses(async (request) => {
  // Drops the bodies, because 10,000 of them would use much memory.
  mock.requests.length = 0;
  if (latencyMs > 0) await new Promise((wake) => setTimeout(wake, latencyMs));
  if (inputItems(request.body).some((item) => item.type === "function_call_output")) {
    return { type: "sse", events: [created("resp-tool"), completed({}, "resp-tool")] };
  }
  if (request.item) {
    const { jobId, itemId } = request.item;
    rows.add(itemId);
    const args = { job_id: jobId, item_id: itemId, result: { item_id: itemId } };
    return answer(functionCall(`call-worker-${calls++}`, "report_agent_job_result", args));
  }
  if (!seenMain) {
    seenMain = true;
    return answer(functionCall("call-spawn", "spawn_agents_on_csv", spawnArguments));
  }
  return { type: "sse", events: [created("resp-default"), completed({}, "resp-default")] };
});

process.on("message", () => {
  const stats: MockStats = { requests: calls, peakInFlight: mock.peakInFlight, rows: rows.size };
  process.send?.(stats);
});
process.on("disconnect", () => process.exit());
process.send?.(mock.url);
