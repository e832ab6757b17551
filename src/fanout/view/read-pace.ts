import { readFile } from "node:fs/promises";
import path from "node:path";
import type { JobDetails } from "../../protocol/console-job-schemas.ts";
import { isObject } from "../../protocol/schema.ts";
import { PACE_FILE } from "../output/rate-status-file.ts";

/** A live run writes every second; an older file was left by a run that was killed. */
const FRESH_MS = 10_000;

/** The last pace written by the process that runs a job; null where there is none on this machine. */
export async function readPace(jobsHome: string, jobId: string, nowMs: number): Promise<JobDetails["pace"]> {
  const text = await readFile(path.join(jobsHome, jobId, PACE_FILE), "utf8").catch(() => null);
  if (text === null) return null;
  const pace: unknown = JSON.parse(text);
  if (!isObject(pace)) return null;
  const { atMs, width, maxWidth, heldMs, apiAwaySeconds } = pace;
  if (![atMs, width, maxWidth, heldMs].every(isCount) || nowMs - Number(atMs) > FRESH_MS) return null;
  return {
    width: Number(width),
    maxWidth: Number(maxWidth),
    heldMs: Math.max(0, Number(heldMs) - Math.max(0, nowMs - Number(atMs))),
    apiAwaySeconds: isCount(apiAwaySeconds) ? apiAwaySeconds : null,
  };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}
