import type { BadgeText } from "../app/state-badge.ts";

/** State of a process, job or row in one or two words. `detail` is its tooltip, and text for screen readers. */
export function Badge({ tone, label, detail }: BadgeText) {
  return (
    <span class={`badge ${tone}`} title={detail}>
      {label}
      {detail !== undefined && <span class="hidden"> ({detail})</span>}
    </span>
  );
}
