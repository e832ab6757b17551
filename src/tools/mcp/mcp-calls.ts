import { randomUUID } from "node:crypto";
import type {
  CallToolResult,
  InputRequiredResult,
  McpRequestContext,
  Server,
  ServerContext,
  Task,
} from "@modelcontextprotocol/server";
import type { Timer } from "../../async/clock.ts";
import { systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../policy/approval.ts";
import { AskingCall } from "../policy/resumable-call.ts";
import type { Tool, ToolOutput } from "../tool.ts";
import { answerTo, canAsk, formFor } from "./mcp-approval-form.ts";
import { type Asker, AskerSource } from "./mcp-askers.ts";
import { type AskingTask, McpTasks } from "./mcp-tasks.ts";

/** A person may take this long to answer; after that a client that never comes back is forgotten. */
const ANSWER_DEADLINE_MS = 5 * 60_000;

const QUESTION = "approval";

type Library = typeof import("@modelcontextprotocol/server");
type Era = McpRequestContext["era"];

const CANNOT_ASK: ApprovalAnswer = {
  type: "refuse",
  reason: "the user has to be asked, and this MCP client offers no elicitation by form",
};

/**
 * Calls of tools by an MCP client, with the questions they put to its user. To clients of 2025 a question is a request of
 * its own; since 2026 it is an answer to the call, which is repeated with what the user said: the call waits meanwhile.
 */
export class McpCalls {
  readonly #library: Library;
  readonly #onError: (error: unknown) => void;
  /** For clients of 2025; newer ones are asked by the answer to their call. */
  readonly #askers = new AskerSource(ANSWER_DEADLINE_MS);
  /** Calls that the client does not wait for. */
  readonly tasks = new McpTasks();
  readonly #waiting = new Map<string, { call: AskingCall; request: ApprovalRequest; deadline: Timer }>();

  constructor(library: Library, onError: (error: unknown) => void) {
    this.#library = library;
    this.#onError = onError;
  }

  async run(
    tool: Tool,
    args: unknown,
    context: ServerContext,
    { server, era }: { server: Server; era: Era },
  ): Promise<CallToolResult | InputRequiredResult> {
    const { mcpReq } = context;
    const state = mcpReq.requestState<unknown>();
    const call = state === undefined ? new AskingCall((context) => tool.call(args, context)) : null;
    const asking = call ?? this.#goOn(state, mcpReq.inputResponses);
    if (!asking) return resultOf({ ok: false, text: "the question is no longer open; make the call again" });
    for (;;) {
      const turn = await asking.turn(mcpReq.signal, this.#progress(mcpReq));
      if (turn.type === "ended") return resultOf(turn.output);
      const { request } = turn;
      if (!canAsk(this.#capabilities(server, era, mcpReq))) asking.answer(CANNOT_ASK);
      else if (era === "modern") return this.#wait(asking, request);
      else asking.answer(await this.#ask(request, this.#askers.during(server, context)));
    }
  }

  /** Begins a call that the client asks about later. The client is told of each change of its status. */
  startTask(
    tool: Tool,
    args: unknown,
    { server, context, ttlMs }: { server: Server; context: ServerContext; ttlMs: number | undefined },
  ): Task {
    return this.tasks.start({
      ttlMs,
      call: (callContext) => tool.call(args, callContext),
      ask: (request, task) => this.#askAboutTask(request, task, server),
      // Over HTTP whoever waits for the result is asked on the stream of that request.
      asker: context.http ? undefined : this.#askers.anytime(server),
      onStatus: (task) => {
        const told = server.notification({ method: "notifications/tasks/status", params: task });
        // A client that is gone asks for the status when it comes back.
        told.catch(() => undefined);
      },
    });
  }

  /** How a client can be asked while it waits for the answer to this request. */
  askerDuring(server: Server, context: ServerContext): Asker {
    return this.#askers.during(server, context);
  }

  /** The client has gone. */
  close(): void {
    this.tasks.close();
    for (const { call, deadline } of this.#waiting.values()) {
      deadline.cancel();
      call.giveUp();
    }
    this.#waiting.clear();
  }

  #capabilities(server: Server, era: Era, { envelope = {} }: ServerContext["mcpReq"]): unknown {
    if (era === "legacy") return server.getClientCapabilities();
    return new Map(Object.entries(envelope)).get(this.#library.CLIENT_CAPABILITIES_META_KEY);
  }

  async #ask(request: ApprovalRequest, asker: Asker): Promise<ApprovalAnswer> {
    try {
      return answerTo(request, await asker.elicit(formFor(request)));
    } catch (error) {
      if (asker.gone.aborted) return refusal("the call was cancelled, or its connection was lost");
      return refusal(`the user could not be asked: ${messageOf(error)}`);
    }
  }

  async #askAboutTask(
    request: ApprovalRequest,
    { taskId, askers, signal }: AskingTask,
    server: Server,
  ): Promise<ApprovalAnswer> {
    if (!canAsk(server.getClientCapabilities())) return CANNOT_ASK;
    const late = AbortSignal.timeout(ANSWER_DEADLINE_MS);
    const form = { ...formFor(request), _meta: { [this.#library.RELATED_TASK_META_KEY]: { taskId } } };
    try {
      return answerTo(request, await askers.elicit(form, AbortSignal.any([signal, late])));
    } catch (error) {
      if (signal.aborted) return refusal("the call was cancelled");
      if (late.aborted) return refusal("the user could not be asked: nobody answered in time");
      return refusal(`the user could not be asked: ${messageOf(error)}`);
    }
  }

  #wait(call: AskingCall, request: ApprovalRequest): InputRequiredResult {
    const { inputRequired } = this.#library;
    const requestState = randomUUID();
    const deadline = systemClock.after(ANSWER_DEADLINE_MS, () => {
      this.#waiting.delete(requestState);
      call.giveUp();
    });
    this.#waiting.set(requestState, { call, request, deadline });
    const inputRequests = { [QUESTION]: inputRequired.elicit(formFor(request)) };
    return inputRequired({ inputRequests, requestState });
  }

  #goOn(state: unknown, responses: ServerContext["mcpReq"]["inputResponses"]): AskingCall | null {
    const waiting = typeof state === "string" ? this.#waiting.get(state) : undefined;
    if (typeof state !== "string" || !waiting) return null;
    this.#waiting.delete(state);
    waiting.deadline.cancel();
    const response = this.#library.inputResponse(responses, QUESTION);
    waiting.call.answer(
      answerTo(waiting.request, response.kind === "elicit" ? response : { action: "cancel" }),
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

/** A refusal has no facts that its schema could describe. */
export function resultOf({ text, ok, structured }: ToolOutput): CallToolResult {
  const content: CallToolResult["content"] = [{ type: "text", text }];
  return ok && structured
    ? { content, structuredContent: structured, isError: false }
    : { content, isError: !ok };
}
