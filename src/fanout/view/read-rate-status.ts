import { readFile } from "node:fs/promises";
import path from "node:path";
import { isObject } from "../../base/type-guards.ts";
import type { JobDetails } from "../../protocol/console/console-job-schemas.ts";
import { RATE_STATUS_FILE, type RateStatus } from "../output/rate-status-file.ts";

/** A running job writes the file every second. An older file is left over from a killed run. */
const MAX_AGE_MS = 10_000;

/** Returns the last status that the process of a run wrote, or null if this host has none. */
export async function readRateStatus(jobsHome: string, jobId: string, nowMs: number): Promise<JobDetails["pace"]> {
  const text = await readFile(path.join(jobsHome, jobId, RATE_STATUS_FILE), "utf8").catch(() => null);
  if (text === null) return null;
  const status: unknown = JSON.parse(text);
  if (!isObject(status)) return null;
  const { atMs, concurrency, maxConcurrency, pausedMs, outageSeconds }: StoredRateStatus = status;
  if (![atMs, concurrency, maxConcurrency, pausedMs].every(isCount) || nowMs - Number(atMs) > MAX_AGE_MS) return null;
  return {
    width: Number(concurrency),
    maxWidth: Number(maxConcurrency),
    heldMs: Math.max(0, Number(pausedMs) - Math.max(0, nowMs - Number(atMs))),
    apiAwaySeconds: isCount(outageSeconds) ? outageSeconds : null,
  };
}

/** The file as it was parsed: the writer's members, with values that are not validated yet. */
type StoredRateStatus = { [K in keyof RateStatus]?: unknown };

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}
