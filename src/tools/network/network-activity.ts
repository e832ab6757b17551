import type { NetworkDecision } from "../../protocol/network/network-schemas.ts";
import { explainDenial, reasonWords } from "./network-denial-compat.ts";
import { formatTarget, type NetworkTarget } from "./network-target.ts";

/** A target that the network policy blocked since the last result. */
export interface BlockedTarget extends NetworkTarget {
  reason: string;
  /** Explanation for the model. */
  message: string;
  /** Number of blocked requests. */
  count: number;
}

/** Blocked targets of one result. */
export interface BlockedTargets {
  targets: readonly BlockedTarget[];
  /** Requests to further targets that exceeded the limit. */
  omitted: number;
}

/** Maximum blocked targets per result, so that a scan of many hosts does not fill the result. */
const MAX_TARGETS = 10;
/** Maximum distinct decisions of a process that are reported as events. */
const MAX_DISTINCT_DECISIONS = 1000;

/** Decisions about the network requests of one process, in bounded memory. */
export class NetworkActivity {
  readonly #blocked = new Map<string, BlockedTarget>();
  readonly #reported = new Set<string>();
  #omitted = 0;

  /** Records a decision. Returns true for the first one with this target and decision, which is worth an event. */
  add({ decision, reason, host, port, protocol }: NetworkDecision): boolean {
    const key = JSON.stringify([decision, reason, host, port]);
    if (decision !== "allow") this.#addBlocked(key, { host, port, protocol, reason });
    if (this.#reported.has(key) || this.#reported.size >= MAX_DISTINCT_DECISIONS) return false;
    this.#reported.add(key);
    return true;
  }

  /** Returns and removes the blocked targets since the last call. */
  takeBlocked(): BlockedTargets {
    const taken = { targets: [...this.#blocked.values()], omitted: this.#omitted };
    this.#blocked.clear();
    this.#omitted = 0;
    return taken;
  }

  #addBlocked(key: string, target: NetworkTarget & { reason: string }): void {
    const known = this.#blocked.get(key);
    if (known) known.count++;
    else if (this.#blocked.size >= MAX_TARGETS) this.#omitted++;
    else this.#blocked.set(key, { ...target, message: explainDenial(target, target.reason), count: 1 });
  }
}

/** Renders blocked targets for a model: one line per target, then its explanation. */
export function renderBlocked({ targets, omitted }: BlockedTargets): string[] {
  const lines = targets.flatMap((target) => {
    const times = target.count > 1 ? ` ${target.count} times` : "";
    return [`network: blocked ${formatTarget(target)} (${reasonWords(target.reason)})${times}`, `  ${target.message}`];
  });
  return omitted > 0 ? [...lines, `network: blocked ${omitted} requests to further targets`] : lines;
}
