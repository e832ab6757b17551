import { randomUUID } from "node:crypto";
import type { Task } from "@modelcontextprotocol/server";
import type { Clock, Timer } from "../../async/clock.ts";
import { systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../policy/approval.ts";
import type { ToolCallContext, ToolOutput } from "../tool.ts";
import { type Asker, TaskAskers } from "./mcp-askers.ts";

/** How long a task is kept from its creation when the client names no time, and at most. */
const DEFAULT_TTL_MS = 60 * 60_000;
const MAX_TTL_MS = 24 * 60 * 60_000;
/** A client that never asks again for what it started loses its oldest tasks beyond this many. */
const MAX_TASKS = 256;
/** What a client is told to wait between two looks. */
const POLL_INTERVAL_MS = 1000;

/** A task that has a question. */
export interface AskingTask {
  taskId: string;
  /** Who can be asked. */
  askers: TaskAskers;
  /** Aborted when the task is cancelled or forgotten. */
  signal: AbortSignal;
}

export interface TaskOptions {
  /** How long the client wants it kept. */
  ttlMs: number | undefined;
  call: (context: ToolCallContext) => Promise<ToolOutput>;
  /** Puts a question to the client's user; meanwhile the task's status says so. */
  ask: (request: ApprovalRequest, task: AskingTask) => Promise<ApprovalAnswer>;
  /** Who can be asked all the time; without one, whoever waits for the result. */
  asker?: Asker | undefined;
  /** Told each change of its status. */
  onStatus: (task: Task) => void;
}

interface TaskState {
  task: Task;
  onStatus: (task: Task) => void;
}

interface KeptTask extends TaskState {
  askers: TaskAskers;
  output: Promise<ToolOutput>;
  abort: AbortController;
  expiry: Timer;
}

/** Calls that a client does not wait for: it is given a task at once, and asks for its status and its result later. */
export class McpTasks {
  readonly #clock: Clock;
  /** Oldest first. */
  readonly #tasks = new Map<string, KeptTask>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Begins a call. */
  start(options: TaskOptions): Task {
    const taskId = randomUUID();
    const ttl = Math.min(Math.max(0, options.ttlMs ?? DEFAULT_TTL_MS), MAX_TTL_MS);
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
    const askers = new TaskAskers();
    if (options.asker) askers.add(options.asker);
    const { onStatus } = options;
    const output = this.#follow({ task, onStatus }, options, { taskId, askers, signal: abort.signal });
    const expiry = this.#clock.after(ttl, () => this.#forget(taskId), { keepAlive: false });
    this.#tasks.set(taskId, { task, onStatus, askers, output, abort, expiry });
    const [oldest] = this.#tasks.keys();
    if (this.#tasks.size > MAX_TASKS && oldest !== undefined) this.#forget(oldest);
    return { ...task };
  }

  get(taskId: string): Task | null {
    const kept = this.#tasks.get(taskId);
    return kept ? { ...kept.task } : null;
  }

  list(): Task[] {
    return [...this.#tasks.values()].map(({ task }) => ({ ...task }));
  }

  /** Waits for the end of the call; meanwhile its questions can go to `asker`. Null for a task that is not known. */
  async result(taskId: string, asker: Asker): Promise<ToolOutput | null> {
    const kept = this.#tasks.get(taskId);
    if (!kept) return null;
    const remove = kept.askers.add(asker);
    try {
      return await kept.output;
    } finally {
      remove();
    }
  }

  /** Ends the wait of a call, not the command behind it. Null for a task that is not known, or has ended. */
  cancel(taskId: string): Task | null {
    const kept = this.#tasks.get(taskId);
    if (!kept || hasEnded(kept.task)) return null;
    this.#set(kept, "cancelled", "the call was cancelled; a command it started goes on");
    kept.abort.abort();
    return { ...kept.task };
  }

  close(): void {
    for (const taskId of [...this.#tasks.keys()]) this.#forget(taskId);
  }

  /** Never rejects: a call that broke is a failed task. */
  async #follow(kept: TaskState, { call, ask }: TaskOptions, asking: AskingTask): Promise<ToolOutput> {
    const set = (status: Task["status"], message?: string) => this.#set(kept, status, message);
    try {
      const output = await call({
        signal: asking.signal,
        onProgress: (message) => set("working", message),
        askCaller: async (request) => {
          set("input_required", "the user is asked whether the command may run");
          const answer = await ask(request, asking);
          set("working");
          return answer;
        },
      });
      set(output.ok ? "completed" : "failed");
      return output;
    } catch (error) {
      set("failed", messageOf(error));
      return { ok: false, text: messageOf(error) };
    }
  }

  /** What has ended stays as it ended. */
  #set({ task, onStatus }: TaskState, status: Task["status"], statusMessage?: string): void {
    if (hasEnded(task)) return;
    const isNew = task.status !== status;
    task.status = status;
    task.lastUpdatedAt = this.#timestamp();
    if (statusMessage === undefined) delete task.statusMessage;
    else task.statusMessage = statusMessage;
    if (isNew) onStatus({ ...task });
  }

  #forget(taskId: string): void {
    const kept = this.#tasks.get(taskId);
    this.#tasks.delete(taskId);
    kept?.expiry.cancel();
    kept?.abort.abort();
  }

  #timestamp(): string {
    return new Date(this.#clock.now()).toISOString();
  }
}

function hasEnded({ status }: Task): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}
