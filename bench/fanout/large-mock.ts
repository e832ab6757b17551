/** The mock model of the large cases: it reports each row immediately, never responds, or limits calls per minute. */

import { report, startMockResponses } from "../../test/support/models/mock-responses.ts";

export interface LargeStats {
  requests: number;
  refused: number;
}

const [mode = "", perMinuteText = "0"] = process.argv.slice(2);
const perMs = Number(perMinuteText) / 60_000;
const capacity = Number(perMinuteText);
const stats: LargeStats = { requests: 0, refused: 0 };
let saved = capacity;
let filledAt = performance.now();

function isRefused(): boolean {
  if (mode !== "bucket") return false;
  const now = performance.now();
  saved = Math.min(capacity, saved + (now - filledAt) * perMs);
  filledAt = now;
  if (saved < 1) return true;
  saved--;
  return false;
}

const mock = await startMockResponses((request) => {
  // Drops the bodies, because a hundred thousand of them would use much memory.
  mock.requests.length = 0;
  stats.requests++;
  if (mode === "hang") return { type: "hang" };
  if (!isRefused()) return report(request);
  stats.refused++;
  return {
    type: "status",
    status: 429,
    body: { error: { code: "rate_limit_exceeded", message: "slow down" } },
  };
});

process.on("message", () => process.send?.(stats));
process.on("disconnect", () => process.exit());
process.send?.(mock.url);
