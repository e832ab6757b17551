import { randomUUID } from "node:crypto";
import type {
  CallToolResult,
  InputRequiredResult,
  McpRequestContext,
  Server,
  ServerContext,
  Task,
} from "@modelcontextprotocol/server";
import { systemClock, type Timer } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../policy/approval.ts";
import { ResumableCall } from "../policy/resumable-call.ts";
import type { Tool, ToolOutput } from "../tool.ts";
import { parseElicitation, supportsElicitation, toElicitationForm } from "./mcp-approval-form.ts";
import { type ElicitationChannel, ElicitationChannels } from "./mcp-elicitation-channels.ts";
import { McpTasks, type TaskPrompt } from "./mcp-tasks.ts";

/** Maximum time for the answer of a user. Afterwards the call is canceled. */
const ANSWER_DEADLINE_MS = 5 * 60_000;

const PROMPT_KEY = "approval";

type Library = typeof import("@modelcontextprotocol/server");
type ProtocolEra = McpRequestContext["era"];

const CANNOT_ASK: ApprovalAnswer = {
  type: "refuse",
  reason: "approval required, but the MCP client does not support form elicitation",
  isUnanswered: true,
};

/**
 * Tool calls of an MCP client and their approval prompts. With MCP of 2025, a prompt is a separate request. Since 2026, it
 * is the response to the call, which the client repeats with the user's answer; meanwhile the call waits.
 */
export class McpCalls {
  readonly #library: Library;
  readonly #onError: (error: unknown) => void;
  /** For clients with MCP of 2025. Newer clients receive prompts as responses. */
  readonly elicitation = new ElicitationChannels(ANSWER_DEADLINE_MS);
  /** Calls that run as MCP tasks. */
  readonly tasks = new McpTasks();
  readonly #waiting = new Map<string, { call: ResumableCall; request: ApprovalRequest; deadline: Timer }>();

  constructor(library: Library, onError: (error: unknown) => void) {
    this.#library = library;
    this.#onError = onError;
  }

  async run(
    tool: Tool,
    args: unknown,
    context: ServerContext,
    { server, era }: { server: Server; era: ProtocolEra },
  ): Promise<CallToolResult | InputRequiredResult> {
    const { mcpReq } = context;
    const state = mcpReq.requestState<unknown>();
    // Newer clients have no MCP session, so their principal is the caller.
    const caller = era === "legacy" ? server : this;
    const call = state === undefined ? new ResumableCall((context) => tool.call(args, { ...context, caller })) : null;
    const pendingCall = call ?? this.#resume(state, mcpReq.inputResponses);
    if (!pendingCall) return resultOf({ ok: false, text: "the approval prompt expired; repeat the call" });
    for (;;) {
      const step = await pendingCall.next(mcpReq.signal, this.#progress(mcpReq));
      if (step.type === "ended") return resultOf(step.output);
      const { request, signal } = step;
      if (!supportsElicitation(this.#capabilities(server, era, mcpReq))) pendingCall.answer(CANNOT_ASK, request);
      else if (era === "modern") return this.#wait(pendingCall, request);
      else pendingCall.answer(await this.#ask(request, this.elicitation.forCall(server, context), signal), request);
    }
  }

  /** Starts a call as an MCP task. The client receives a notification on each change of its status. */
  startTask(
    tool: Tool,
    args: unknown,
    { server, context, ttlMs }: { server: Server; context: ServerContext; ttlMs: number | undefined },
  ): Task {
    return this.tasks.start({
      server,
      ttlMs,
      call: (callContext) => tool.call(args, callContext),
      ask: (request, task) => this.#askAboutTask(request, task, server),
      // Over HTTP, prompts use the stream of the request that waits for the result.
      elicitation: context.http ? undefined : this.elicitation.forSession(server),
      onStatus: (task) => {
        const sent = server.notification({ method: "notifications/tasks/status", params: task });
        // A disconnected client polls the status after it reconnects.
        sent.catch(() => undefined);
      },
    });
  }

  /** Cancels all calls. Called when the client disconnects. */
  close(): void {
    this.tasks.close();
    for (const { call, deadline } of this.#waiting.values()) {
      deadline.cancel();
      call.cancel();
    }
    this.#waiting.clear();
  }

  #capabilities(server: Server, era: ProtocolEra, { envelope = {} }: ServerContext["mcpReq"]): unknown {
    if (era === "legacy") return server.getClientCapabilities();
    return new Map(Object.entries(envelope)).get(this.#library.CLIENT_CAPABILITIES_META_KEY);
  }

  async #ask(
    request: ApprovalRequest,
    channel: ElicitationChannel,
    signal: AbortSignal | undefined,
  ): Promise<ApprovalAnswer> {
    try {
      return parseElicitation(request, await channel.elicit(toElicitationForm(request), signal));
    } catch (error) {
      if (channel.closed.aborted) return refusal("the call was cancelled, or its connection was lost");
      return refusal(`approval prompt failed: ${errorMessage(error)}`);
    }
  }

  async #askAboutTask(
    request: ApprovalRequest,
    { taskId, elicitation, signal }: TaskPrompt,
    server: Server,
  ): Promise<ApprovalAnswer> {
    if (!supportsElicitation(server.getClientCapabilities())) return CANNOT_ASK;
    const timeout = AbortSignal.timeout(ANSWER_DEADLINE_MS);
    const form = {
      ...toElicitationForm(request),
      _meta: { [this.#library.RELATED_TASK_META_KEY]: { taskId } },
    };
    try {
      return parseElicitation(request, await elicitation.elicit(form, AbortSignal.any([signal, timeout])));
    } catch (error) {
      if (signal.aborted) return refusal("the call was cancelled");
      if (timeout.aborted) return refusal("approval prompt failed: no answer in time");
      return refusal(`approval prompt failed: ${errorMessage(error)}`);
    }
  }

  #wait(call: ResumableCall, request: ApprovalRequest): InputRequiredResult {
    const { inputRequired } = this.#library;
    const requestState = randomUUID();
    const deadline = systemClock.after(ANSWER_DEADLINE_MS, () => {
      this.#waiting.delete(requestState);
      call.cancel();
    });
    this.#waiting.set(requestState, { call, request, deadline });
    const inputRequests = { [PROMPT_KEY]: inputRequired.elicit(toElicitationForm(request)) };
    return inputRequired({ inputRequests, requestState });
  }

  #resume(state: unknown, responses: ServerContext["mcpReq"]["inputResponses"]): ResumableCall | null {
    const waiting = typeof state === "string" ? this.#waiting.get(state) : undefined;
    if (typeof state !== "string" || !waiting) return null;
    this.#waiting.delete(state);
    waiting.deadline.cancel();
    const response = this.#library.inputResponse(responses, PROMPT_KEY);
    waiting.call.answer(
      parseElicitation(waiting.request, response.kind === "elicit" ? response : { action: "cancel" }),
      waiting.request,
    );
    return waiting.call;
  }

  #progress({ _meta, notify }: ServerContext["mcpReq"]): ((message: string) => void) | undefined {
    const progressToken = _meta?.progressToken;
    if (progressToken === undefined) return undefined;
    let progress = 0;
    return (message) => {
      const params = { progressToken, progress: ++progress, message };
      notify({ method: "notifications/progress", params }).catch(this.#onError);
    };
  }
}

function refusal(reason: string): ApprovalAnswer {
  return { type: "refuse", reason };
}

/** Converts an output to an MCP result. Rejected calls have no structured content, because no schema describes it. */
export function resultOf({ text, ok, structured }: ToolOutput): CallToolResult {
  const content: CallToolResult["content"] = [{ type: "text", text }];
  return ok && structured ? { content, structuredContent: structured, isError: false } : { content, isError: !ok };
}
