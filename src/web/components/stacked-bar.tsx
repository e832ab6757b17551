import type { JobListing } from "../../protocol/console/console-job-schemas.ts";
import { formatCount } from "../app/format.ts";

const PARTS = ["completed", "failed", "running"] as const;

/** Progress of a job: completed, failed and running rows as parts of one bar. */
export function StackedBar({ job }: { job: JobListing }) {
  const { completed, failed, running, pending } = job;
  const all = Math.max(1, completed + failed + running + pending);
  const text = PARTS.map((part) => `${formatCount(job[part])} ${part}`).join(", ");
  return (
    <div
      class="stacked-bar"
      role="progressbar"
      aria-label="Rows done"
      aria-valuemin={0}
      aria-valuemax={all}
      aria-valuenow={completed + failed}
      aria-valuetext={`${text} of ${formatCount(all)}`}
      title={`${text} of ${formatCount(all)}`}
    >
      {PARTS.map((part) => job[part] > 0 && <span key={part} class={part} style={{ flexGrow: job[part] / all }} />)}
      {pending > 0 && <span style={{ flexGrow: pending / all }} />}
    </div>
  );
}
