import { withDeadline } from "../async/deadline.ts";
import { messageOf } from "../base/error-message.ts";
import type { UnifiedExecEvent } from "../tools/sessions/exec-events.ts";
import type { Tool } from "../tools/tool.ts";
import type { Notification } from "./agent-notification.ts";
import type { CallModel } from "./api/model-caller.ts";
import type { JsonObject } from "./api/response-events.ts";
import { EventStream } from "./output/bounded-event-queue.ts";
import { followCommands } from "./output/command-items.ts";
import type { RunOutput, RunStatus } from "./run-output.ts";
import { addUsage, NO_USAGE, type TokenUsage, totalTokens } from "./token-usage.ts";
import { runTurn } from "./turn.ts";
import { decodeTurnCompleted } from "./turn-completion.ts";

/** What a tool gets that sends events, or that has agents of its own. */
export interface RunContext {
  threadId: string;
  turnId: string;
  /** Sends an event to the output of the run; a `required` one is never dropped. */
  notify(notification: Notification, options?: { required?: boolean }): void;
  /** Counts tokens that agents below this one have used. */
  addSubagentsUsage(usage: TokenUsage): void;
}

export interface RunTools {
  tools: Tool[];
  /** What becomes of the commands they start, from now on. */
  events?: () => AsyncIterable<UnifiedExecEvent>;
  close(): Promise<void>;
}

export interface HeadlessRunOptions {
  prompt: string;
  /** A thread to go on with: its name and what was said in it so far. */
  resume?: { threadId: string; history: readonly JsonObject[] } | undefined;
  /** Told what is said, the prompt too, as it is: what a later run goes on from. */
  onHistory?: ((threadId: string, item: JsonObject) => void) | undefined;
  /** Data URLs of images that go with it. */
  images?: readonly string[];
  /** A JSON Schema that the last message has to follow. */
  outputSchema?: Readonly<Record<string, unknown>> | undefined;
  /** The turn fails when the model was asked this often, or when it has used this many tokens and is not at an end. */
  maxTurns?: number | undefined;
  budgetTokens?: number | undefined;
  model: string;
  instructions: string;
  reasoningEffort?: string | undefined;
  callModel: CallModel;
  createTools(context: RunContext): Promise<RunTools>;
  output: RunOutput;
  /** Aborted when the user wants out. */
  signal: AbortSignal;
  newId: () => string;
  /** News that may wait before some is left out. */
  streamCapacity?: number;
  /** Nothing that is still open after the end may keep the run longer than this. */
  shutdownMs?: number;
}

export interface RunEnd {
  type: "completed" | "failed" | "interrupted";
  /** What the agent said last. */
  lastMessage: string | null;
}

const DEFAULT_SHUTDOWN_MS = 5_000;

/** One turn from prompt to end. Resolves when everything it started is closed, or has been given up on. */
export async function runHeadless(options: HeadlessRunOptions): Promise<RunEnd> {
  const run = new HeadlessRun(options);
  return run.run();
}

class HeadlessRun {
  #options: HeadlessRunOptions;
  #threadId: string;
  #turnId: string;
  #stream: EventStream<Notification>;
  #usage: TokenUsage = NO_USAGE;
  #subagentsUsage: TokenUsage | null = null;
  #lastMessage: string | null = null;
  #errorSeen = false;

  constructor(options: HeadlessRunOptions) {
    this.#options = options;
    this.#threadId = options.resume?.threadId ?? options.newId();
    this.#turnId = options.newId();
    this.#stream = new EventStream(options.streamCapacity);
  }

  async run(): Promise<RunEnd> {
    const { output } = this.#options;
    let toolSet: RunTools;
    try {
      toolSet = await this.#options.createTools(this.#context());
    } catch (error) {
      output.failure(messageOf(error));
      output.close();
      return this.#end("failed");
    }
    this.#notify({ method: "thread/started", threadId: this.#threadId });
    const commands = this.#tellCommands(toolSet);
    const turn = this.#turn(toolSet.tools).finally(() => this.#stream.end());
    turn.catch(() => undefined);
    try {
      return await this.#follow();
    } finally {
      await this.#shutDown(
        turn.catch(() => undefined).then(() => toolSet.close()),
        commands,
      );
    }
  }

  /** Ends with the tools. */
  async #tellCommands({ events }: RunTools): Promise<void> {
    const ids = { threadId: this.#threadId, turnId: this.#turnId };
    if (!events) return;
    await followCommands(
      events(),
      (method, item) => this.#notify({ method, ...ids, item }),
      (event) => this.#notify({ method: "tool/event", ...ids, event }),
    );
  }

  #turn(tools: Tool[]) {
    const { prompt, images = [], budgetTokens, resume, onHistory } = this.#options;
    const content = [
      { type: "input_text", text: prompt },
      ...images.map((url) => ({ type: "input_image", image_url: url })),
    ];
    const question = { type: "message", role: "user", content };
    const tell = (item: JsonObject) => onHistory?.(this.#threadId, item);
    tell(question);
    return runTurn({
      threadId: this.#threadId,
      turnId: this.#turnId,
      model: this.#options.model,
      instructions: this.#options.instructions,
      reasoningEffort: this.#options.reasoningEffort,
      cacheKey: this.#threadId,
      headers: { session_id: this.#threadId },
      tools,
      history: [...(resume?.history ?? []), question],
      onHistory: tell,
      outputSchema: this.#options.outputSchema,
      maxModelCalls: this.#options.maxTurns,
      checkGoesOn: (usage) => {
        const used = totalTokens(addUsage(usage, this.#subagentsUsage ?? NO_USAGE));
        if (budgetTokens !== undefined && used >= budgetTokens)
          throw new Error(`the budget of ${budgetTokens} tokens is used up (${used})`);
      },
      signal: this.#options.signal,
      callModel: this.#options.callModel,
      notify: (notification) => this.#notify(notification),
    });
  }

  /** Reads the news until the end of this very turn. */
  async #follow(): Promise<RunEnd> {
    const { output } = this.#options;
    for await (const entry of this.#stream) {
      await output.drained();
      if (entry.type === "lagged") {
        output.warning(`the event stream lagged; ${entry.skipped} events were dropped`);
        continue;
      }
      const notification = entry.value;
      const end = decodeTurnCompleted(notification, this.#threadId, this.#turnId);
      if (end) {
        this.#errorSeen ||= end.terminalError;
        const status = output.turnEnded(end.event, {
          error: notification.method === "turn/completed" ? notification.turn.error : null,
          lastMessage: this.#lastMessage,
          usage: this.#usage,
          subagentsUsage: this.#subagentsUsage,
        });
        if (!endsRun(status)) continue;
        return this.#end(end.event.msg.type === "turnAborted" ? "interrupted" : "completed");
      }
      this.#note(notification);
      if (endsRun(output.notification(notification))) return this.#end("completed");
    }
    output.failure("the turn ended without saying how");
    return this.#end("failed");
  }

  /** An error that was seen on the way makes a completed run a failed one. */
  #end(type: RunEnd["type"]): RunEnd {
    return {
      type: type === "completed" && this.#errorSeen ? "failed" : type,
      lastMessage: this.#lastMessage,
    };
  }

  /** Keeps what the end of the run will tell, from this turn alone. */
  #note(notification: Notification): void {
    if (!("turnId" in notification)) return;
    if (notification.threadId !== this.#threadId || notification.turnId !== this.#turnId) return;
    if (notification.method === "error" && !notification.willRetry) this.#errorSeen = true;
    if (notification.method === "thread/tokenUsage") this.#usage = notification.usage;
    if (notification.method === "item/completed" && notification.item.type === "agentMessage") {
      this.#lastMessage = notification.item.text;
    }
  }

  #notify(notification: Notification, required = true): void {
    this.#stream.push(notification, { required: required && notification.method !== "item/updated" });
  }

  #context(): RunContext {
    return {
      threadId: this.#threadId,
      turnId: this.#turnId,
      notify: (notification, options) => this.#notify(notification, options?.required ?? false),
      addSubagentsUsage: (usage) => {
        this.#subagentsUsage = addUsage(this.#subagentsUsage ?? NO_USAGE, usage);
      },
    };
  }

  async #shutDown(...parts: Promise<unknown>[]): Promise<void> {
    const { output, shutdownMs = DEFAULT_SHUTDOWN_MS } = this.#options;
    try {
      await withDeadline(Promise.all(parts), shutdownMs, "the tools to close");
      await withDeadline(output.drained(), shutdownMs, "the output to be read");
    } catch (error) {
      output.warning(`shutdown: ${messageOf(error)}`);
    } finally {
      output.close();
    }
  }
}

/** An agent of a job that shuts down does not end the run. */
function endsRun(status: RunStatus): boolean {
  return status === "initiateShutdown";
}
