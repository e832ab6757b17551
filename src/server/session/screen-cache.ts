import { KeyedQueue } from "../../async/keyed-queue.ts";
import type { MemoryBudget } from "../../async/memory-budget.ts";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import { isLogComplete, onceLogComplete } from "../../exec/backend/process-state.ts";
import { DEFAULT_TERMINAL_SIZE, type TerminalScreen } from "../../exec/exec-process.ts";
import { ScreenRenderer } from "../../exec/terminal/screen-renderer.ts";

/** Maximum renderers, each with an emulator of about 200 KB. */
const MAX_RENDERERS = 32;

interface Entry {
  renderer: ScreenRenderer;
  chargedBytes: number;
}

/**
 * Renders the screens of terminal processes on demand, one at a time. Keeps the renderers of recently rendered live
 * processes, so that the next rendering draws only new output. Their memory is charged to the memory budget.
 */
export class ScreenCache {
  readonly #memory: MemoryBudget;
  /** Least recently used first. */
  readonly #entries = new Map<HostProcess, Entry>();
  readonly #queue = new KeyedQueue<"render">();
  #rendering: HostProcess | null = null;

  constructor(memory: MemoryBudget) {
    this.#memory = memory;
    memory.addReclaimer("caches", (bytes) => {
      const target = memory.bytes - bytes;
      for (const process of [...this.#entries.keys()]) if (memory.bytes > target) this.#drop(process);
    });
  }

  /** Returns the current screen. Null if the process has no terminal, or if the terminal is too large to render. */
  render(process: HostProcess): Promise<TerminalScreen | null> {
    if (process.size === null) return Promise.resolve(null);
    return this.#queue.run("render", async () => {
      // First, so that the renderer of a process that has closed is freed after its use, and not before.
      this.#rendering = process;
      const entry = this.#use(process);
      try {
        return await entry.renderer.render();
      } finally {
        this.#rendering = null;
        this.#charge(entry);
        if (isLogComplete(process)) this.#drop(process);
      }
    });
  }

  /** Returns the entry of a process and marks it as used last. */
  #use(process: HostProcess): Entry {
    const known = this.#entries.get(process);
    this.#entries.delete(process);
    const entry = known ?? { renderer: createRenderer(process), chargedBytes: 0 };
    this.#entries.set(process, entry);
    if (!known) onceLogComplete(process, () => this.#drop(process));
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > MAX_RENDERERS && oldest) this.#drop(oldest);
    return entry;
  }

  #charge(entry: Entry): void {
    const { bytes } = entry.renderer;
    const added = bytes - entry.chargedBytes;
    entry.chargedBytes = bytes;
    if (added > 0) this.#memory.charge(added);
    else this.#memory.release(-added);
  }

  /** Frees the renderer of a process, unless it is rendering. */
  #drop(process: HostProcess): void {
    const entry = this.#entries.get(process);
    if (!entry || process === this.#rendering) return;
    this.#entries.delete(process);
    entry.renderer.dispose();
    this.#charge(entry);
  }
}

function createRenderer(process: HostProcess): ScreenRenderer {
  const { log, sizes } = process;
  return new ScreenRenderer({ log, sizes, size: () => process.size ?? DEFAULT_TERMINAL_SIZE });
}
