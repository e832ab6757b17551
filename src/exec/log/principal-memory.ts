import { MemoryBudget } from "../../async/memory-budget.ts";
import type { RetentionBudget } from "./retention-budget.ts";

/** Budgets of all processes of a server. */
export interface OutputBudgets {
  retention: RetentionBudget;
  snapshots: RetentionBudget;
}

/** Memory of one principal: its budget, and its part of the output budgets. */
export interface PrincipalMemory extends OutputBudgets {
  readonly budget: MemoryBudget;
}

interface Entry extends PrincipalMemory {
  /** Number of open connections. */
  users: number;
}

/**
 * Divides the memory of a server between principals. A principal that fills its quota evicts and pauses only its own
 * output. The server forgets a principal without connections and retained output.
 */
export class PrincipalMemories {
  readonly #maxBytes: number;
  readonly #memory: MemoryBudget;
  readonly #output: OutputBudgets;
  readonly #entries = new Map<string, Entry>();

  /** `maxBytes` is the quota of one principal; `memory` and `output` are the budgets of the server. */
  constructor(maxBytes: number, memory: MemoryBudget, output: OutputBudgets) {
    this.#maxBytes = maxBytes;
    this.#memory = memory;
    this.#output = output;
  }

  /** Number of principals with connections or retained output. */
  get size(): number {
    return this.#entries.size;
  }

  /** Part of each server limit that one principal may use. */
  get share(): number {
    return this.#maxBytes / this.#memory.maxBytes;
  }

  /** Returns the memory of a principal for one connection, and the function that ends its use. */
  open(ownerId: string): PrincipalMemory & Disposable {
    const entry = this.#entry(ownerId);
    entry.users++;
    return {
      ...entry,
      [Symbol.dispose]: () => {
        entry.users--;
        this.#removeUnused(ownerId);
      },
    };
  }

  /** Returns the output budgets for a new event log, which joins them at once. */
  forLog(ownerId: string): OutputBudgets {
    return this.#entry(ownerId);
  }

  #entry(ownerId: string): Entry {
    const known = this.#entries.get(ownerId);
    if (known) return known;
    const budget = new MemoryBudget(this.#maxBytes);
    const onEmpty = () => this.#removeUnused(ownerId);
    const { retention, snapshots } = this.#output;
    const options = { share: this.share, memory: budget, onEmpty };
    const entry = {
      budget,
      retention: retention.openPart({ ...options, order: "liveProcesses" }),
      snapshots: snapshots.openPart({ ...options, order: "caches" }),
      users: 0,
    };
    this.#entries.set(ownerId, entry);
    return entry;
  }

  #removeUnused(ownerId: string): void {
    const entry = this.#entries.get(ownerId);
    if (!entry || entry.users > 0 || !entry.retention.isEmpty || !entry.snapshots.isEmpty) return;
    this.#entries.delete(ownerId);
    entry.retention.closePart();
    entry.snapshots.closePart();
  }
}
