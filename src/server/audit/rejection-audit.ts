import type { Clock } from "../../async/clock.ts";
import type { AuditEvent } from "./audit-event.ts";

/** Maximum lines about rejected credentials per minute, so that clients without a token cannot fill the disk. */
const MAX_REJECTIONS_PER_MINUTE = 120;
const MINUTE_MS = 60_000;

/** Records rejected credentials. Counts those above the rate, and reports the count in the next line. */
export class RejectionAudit {
  readonly #log: { record(actor: null, event: AuditEvent): void };
  readonly #clock: Clock;
  #minuteBeganAtMs = Number.NEGATIVE_INFINITY;
  #recorded = 0;
  #omitted = 0;

  constructor(log: { record(actor: null, event: AuditEvent): void }, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  record(event: Pick<AuditEvent, "event" | "peer" | "reason">): void {
    const now = this.#clock.monotonic();
    if (now - this.#minuteBeganAtMs >= MINUTE_MS) {
      this.#minuteBeganAtMs = now;
      this.#recorded = 0;
    }
    if (this.#recorded >= MAX_REJECTIONS_PER_MINUTE) {
      this.#omitted++;
      return;
    }
    this.#recorded++;
    const omitted = this.#omitted === 0 ? undefined : this.#omitted;
    this.#omitted = 0;
    this.#log.record(null, { ...event, outcome: "refused", omitted });
  }
}
