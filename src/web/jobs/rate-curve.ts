import type { JobDetails } from "../../protocol/console/console-job-schemas.ts";
import type { ChartPoint } from "../components/chart-point.ts";

/** Finished rows per span of a job. */
type RateHistory = Pick<JobDetails, "settled" | "spanMs"> & { job: Pick<JobDetails["job"], "status"> };

/** Returns the rate over time, with zeros for spans without a finished row. */
export function toRateCurve({ job, settled, spanMs }: RateHistory): ChartPoint[] {
  const [first] = settled;
  const last = settled.at(-1);
  if (!first || !last) return [];
  // The last span of a running job is not over: its rate would be too low.
  const endMs = job.status === "running" ? last.atMs - spanMs : last.atMs;
  const rows = new Map(settled.map(({ atMs, completed, failed }) => [atMs, completed + failed]));
  const points: ChartPoint[] = [];
  for (let atMs = first.atMs; atMs <= endMs; atMs += spanMs)
    points.push([atMs / 1000, ((rows.get(atMs) ?? 0) * 1000) / spanMs]);
  return points;
}
