import { randomUUID } from "node:crypto";
import type { Server, Task } from "@modelcontextprotocol/server";
import { systemClock, type Timer } from "../../async/clock.ts";
import { clamp } from "../../base/clamp.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../policy/approval.ts";
import type { ToolCallContext, ToolOutput } from "../tool.ts";
import { type ElicitationChannel, TaskElicitation } from "./mcp-elicitation-channels.ts";

/** Default and maximum TTL of a task, from its creation. */
const DEFAULT_TTL_MS = 60 * 60_000;
const MAX_TTL_MS = 24 * 60 * 60_000;
/** Maximum number of tasks. Beyond it, the oldest is removed. */
const MAX_TASKS = 256;
/** Recommended poll interval of clients. */
const POLL_INTERVAL_MS = 1000;

/** Context of an approval prompt of a task. */
export interface TaskPrompt {
  taskId: string;
  elicitation: TaskElicitation;
  /** Aborts when the task is canceled or removed. */
  signal: AbortSignal;
}

export interface TaskOptions {
  /** Server of the MCP session that made the call. Only this session receives prompts, and only its approvals apply. */
  server: Server;
  /** TTL requested by the client. */
  ttlMs: number | undefined;
  call: (context: ToolCallContext) => Promise<ToolOutput>;
  /** Asks the client's user. Meanwhile the task has the status `input_required`. */
  ask: (request: ApprovalRequest, task: TaskPrompt) => Promise<ApprovalAnswer>;
  /** Permanent channel for prompts. Without it, a prompt waits until the client waits for the result. */
  elicitation?: ElicitationChannel | undefined;
  /** Called on each change of the status. */
  onStatus: (task: Task) => void;
}

interface TaskState {
  task: Task;
  onStatus: (task: Task) => void;
}

interface StoredTask extends TaskState {
  elicitation: TaskElicitation;
  output: Promise<ToolOutput>;
  abort: AbortController;
  expiry: Timer;
}

/** Tool calls as MCP tasks: the client receives a task immediately and polls its status and result. */
export class McpTasks {
  /** Oldest first. */
  readonly #tasks = new Map<string, StoredTask>();

  start(options: TaskOptions): Task {
    const taskId = randomUUID();
    const ttl = clamp(options.ttlMs ?? DEFAULT_TTL_MS, 0, MAX_TTL_MS);
    const createdAt = this.#timestamp();
    const task: Task = {
      taskId,
      status: "working",
      ttl,
      createdAt,
      lastUpdatedAt: createdAt,
      pollInterval: POLL_INTERVAL_MS,
    };
    const abort = new AbortController();
    const elicitation = new TaskElicitation(options.server);
    if (options.elicitation) elicitation.add(options.elicitation);
    const { onStatus } = options;
    const output = this.#runCall({ task, onStatus }, options, { taskId, elicitation, signal: abort.signal });
    const expiry = systemClock.after(ttl, () => this.#remove(taskId), { keepAlive: false });
    this.#tasks.set(taskId, { task, onStatus, elicitation, output, abort, expiry });
    const [oldest] = this.#tasks.keys();
    if (this.#tasks.size > MAX_TASKS && oldest !== undefined) this.#remove(oldest);
    return { ...task };
  }

  get(taskId: string): Task | null {
    const stored = this.#tasks.get(taskId);
    return stored ? { ...stored.task } : null;
  }

  list(): Task[] {
    return [...this.#tasks.values()].map(({ task }) => ({ ...task }));
  }

  /** Waits for the result, or returns null for an unknown task. Meanwhile, prompts can use `channel`. */
  async result(taskId: string, channel: ElicitationChannel): Promise<ToolOutput | null> {
    const stored = this.#tasks.get(taskId);
    if (!stored) return null;
    const remove = stored.elicitation.add(channel);
    try {
      return await stored.output;
    } finally {
      remove();
    }
  }

  /** Cancels the call, but not its command. Returns null for an unknown or ended task. */
  cancel(taskId: string): Task | null {
    const stored = this.#tasks.get(taskId);
    if (!stored || hasEnded(stored.task)) return null;
    this.#setStatus(stored, "cancelled", "the call was cancelled; its command keeps running");
    stored.abort.abort();
    return { ...stored.task };
  }

  close(): void {
    for (const taskId of [...this.#tasks.keys()]) this.#remove(taskId);
  }

  /** Runs the call. Never rejects: an error makes the task fail. */
  async #runCall(stored: TaskState, { server, call, ask }: TaskOptions, prompt: TaskPrompt): Promise<ToolOutput> {
    const set = (status: Task["status"], message?: string) => this.#setStatus(stored, status, message);
    try {
      const output = await call({
        signal: prompt.signal,
        caller: server,
        onProgress: (message) => set("working", message),
        askCaller: async (request, withdrawn = prompt.signal) => {
          set("input_required", "waiting for the user's approval");
          const answer = await ask(request, { ...prompt, signal: AbortSignal.any([prompt.signal, withdrawn]) });
          set("working");
          return answer;
        },
      });
      set(output.ok ? "completed" : "failed");
      return output;
    } catch (error) {
      set("failed", errorMessage(error));
      return { ok: false, text: errorMessage(error) };
    }
  }

  /** Changes the status. No-op after a terminal status. */
  #setStatus({ task, onStatus }: TaskState, status: Task["status"], statusMessage?: string): void {
    if (hasEnded(task)) return;
    const isNew = task.status !== status;
    task.status = status;
    task.lastUpdatedAt = this.#timestamp();
    if (statusMessage === undefined) delete task.statusMessage;
    else task.statusMessage = statusMessage;
    if (isNew) onStatus({ ...task });
  }

  #remove(taskId: string): void {
    const stored = this.#tasks.get(taskId);
    this.#tasks.delete(taskId);
    stored?.expiry.cancel();
    stored?.abort.abort();
  }

  #timestamp(): string {
    return new Date(systemClock.now()).toISOString();
  }
}

function hasEnded({ status }: Task): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}
