import type { CallModel } from "../../agent/api/model-caller.ts";
import { ModelError } from "../../agent/api/model-error.ts";
import type { JsonObject } from "../../agent/api/response-events.ts";
import type { RunToolset } from "../../agent/headless-run.ts";
import { addUsage, NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import { runTurn, type TurnOutcome } from "../../agent/turn.ts";
import type { Clock } from "../../async/clock.ts";
import { withDeadline } from "../../async/deadline.ts";
import { OutageTimeoutError } from "../../async/outage-retry.ts";
import { errorMessage } from "../../base/error-message.ts";
import { HostLostError, NoHostAvailableError } from "../../exec/backend/host-errors.ts";
import type { Tool } from "../../tools/tool.ts";
import type { ErrorClass, ItemRecord, JobRecord } from "../job.ts";
import type { ItemLease, JobLedger } from "../ledger/job-ledger.ts";
import { batchConversation } from "./batch-conversation.ts";
import type { CompiledTask } from "./compiled-task.ts";
import { VoteTally } from "./majority-vote.ts";
import { createReportTool, REPORT_TOOL_NAME, type ReportState } from "./report-tool.ts";
import { RowDeadline } from "./row-deadline.ts";
import { type EndedAttempt, outcomeOfError, type RowAgent, type RowOutcome } from "./row-outcome.ts";
import { type CommonPrompt, commonPrompt, rowAttachments, rowRequest } from "./row-request.ts";
import { Transcript } from "./transcript.ts";

/**
 * Opens the tools of a row agent in addition to the report tool; null if there are none. The signal aborts when the row
 * ends early.
 */
export type OpenRowTools = (
  job: JobRecord,
  item: Pick<ItemRecord, "rowIndex" | "row">,
  signal: AbortSignal,
) => Promise<RunToolset | null>;

/** Options shared by all rows of a job. */
export interface RowAgentOptions {
  job: JobRecord;
  ledger: JobLedger;
  task: CompiledTask;
  callModel: CallModel;
  /** Opens tools for one row; they are closed after it. */
  openTools?: OpenRowTools | undefined;
  clock: Clock;
}

/** Maximum model calls of an agent whose only tool is the report tool. */
const MAX_CALLS_WITHOUT_TOOLS = 8;
/** Maximum model calls of an agent with tools; an agent that exceeds it is in a loop. */
const MAX_CALLS_WITH_TOOLS = 200;
/** Maximum time to close the tools of a row, so that a slow host does not block the slot. */
const TOOLS_CLOSE_TIMEOUT_MS = 5_000;

/** Number of lost hosts at which the row is considered the cause. */
const MAX_HOSTS_LOST = 3;

/** Returns the function that executes one row: one agent, one turn, until a report is accepted. */
export function createRowAgent(options: RowAgentOptions): RowAgent {
  const common = commonPrompt(options.job);
  const hostsLost = new Map<string, number>();
  return async (lease, signal) => {
    const attempt = new RowAttempt(options, lease, common, signal);
    const outcome = await attempt.run();
    const { itemId } = lease.item;
    if (outcome.type !== "hostLost") {
      hostsLost.delete(itemId);
      return outcome;
    }
    const lost = (hostsLost.get(itemId) ?? 0) + 1;
    hostsLost.set(itemId, lost);
    if (lost < MAX_HOSTS_LOST) return outcome;
    return { ...outcome, type: "failed", errorClass: "spawn", final: false };
  };
}

/** How one agent's turn ended, and the state of its report. */
interface AgentTurnResult {
  state: ReportState;
  outcome: TurnOutcome;
}

const EMPTY_TURN: TurnOutcome = { type: "completed", usage: NO_USAGE, lastMessage: null, refusal: null };

class RowAttempt {
  #options: RowAgentOptions;
  #lease: ItemLease;
  #common: CommonPrompt;
  #runSignal: AbortSignal;
  #usage: TokenUsage = NO_USAGE;
  #transcript = new Transcript();
  #reported: { item: ItemRecord; stop: boolean } | null = null;
  #ledgerFault: { cause: unknown } | null = null;
  #toolCrash: string | null = null;
  #hostLost: string | null = null;
  #attachments: JsonObject[] = [];
  /** Items of an invalid batch answer that this attempt repairs. */
  #repair: JsonObject[] = [];
  #controller = new AbortController();
  #deadline: RowDeadline;

  constructor(options: RowAgentOptions, lease: ItemLease, common: CommonPrompt, signal: AbortSignal) {
    this.#options = options;
    this.#lease = lease;
    this.#common = common;
    this.#runSignal = signal;
    this.#deadline = new RowDeadline(options.job.settings.rowTimeoutMs, options.clock, () =>
      this.#controller.abort(new Error("the row's time is up")),
    );
  }

  async run(): Promise<EndedAttempt> {
    const outcome = await this.#run();
    return { ...outcome, transcript: this.#transcript.json };
  }

  async #run(): Promise<RowOutcome> {
    const onAbort = () => this.#controller.abort(this.#runSignal.reason);
    if (this.#runSignal.aborted) onAbort();
    else this.#runSignal.addEventListener("abort", onAbort, { once: true });
    try {
      const opened = await this.#openTools();
      if (opened.type !== "opened") {
        if (this.#runSignal.aborted) return { type: "interrupted", usage: this.#usage };
        if (opened.type === "failed") return this.#failed("spawn", opened.message);
        return { type: "blocked", message: opened.message, usage: this.#usage };
      }
      try {
        try {
          this.#attachments = await rowAttachments(this.#options.job, this.#lease.item);
        } catch (error) {
          return this.#failed("spawn", errorMessage(error), true);
        }
        this.#repair = await batchConversation(this.#options.ledger, this.#lease.item);
        return await this.#runAgents(opened.tools);
      } finally {
        await closeTools(opened.tools);
      }
    } finally {
      this.#deadline.cancel();
      this.#runSignal.removeEventListener("abort", onAbort);
    }
  }

  async #openTools(): Promise<OpenToolsResult> {
    const { openTools, job } = this.#options;
    // The wait for a host does not count against the row timeout.
    this.#deadline.pause();
    try {
      const { signal } = this.#controller;
      return { type: "opened", tools: (await openTools?.(job, this.#lease.item, signal)) ?? null };
    } catch (error) {
      return { type: isHostOutage(error) ? "noHost" : "failed", message: errorMessage(error) };
    } finally {
      this.#deadline.resume();
    }
  }

  /** Wraps a tool: a lost host ends the attempt, because the model could only guess a result. */
  #withToolFaults(tool: Tool): Tool {
    return {
      ...tool,
      call: async (args, context) => {
        try {
          return await tool.call(args, context);
        } catch (error) {
          if (error instanceof HostLostError || isHostOutage(error)) {
            this.#hostLost = error.message;
            this.#controller.abort(error);
          }
          throw error;
        }
      },
    };
  }

  async #runAgents(rowTools: RunToolset | null): Promise<RowOutcome> {
    const { votes = 1 } = this.#options.job.task;
    if (votes > 1) return this.#vote(rowTools, votes);
    const { state, outcome } = await this.#runAgent(rowTools, (result, stop) =>
      this.#commit(JSON.stringify(result), stop),
    );
    return this.#toOutcome(state, outcome);
  }

  /** Runs several agents in sequence, until no further vote can change the majority. */
  async #vote(rowTools: RunToolset | null, votes: number): Promise<RowOutcome> {
    const tally = new VoteTally(votes);
    let last: AgentTurnResult | null = null;
    for (let vote = 0; vote < votes && !tally.isDecided; vote++) {
      last = await this.#runAgent(rowTools, async (result, stop) => {
        tally.add(result, stop);
        return true;
      });
      // An agent without an answer has no vote. An error that ended its turn would also end the next one.
      if (last.state.type !== "accepted" && last.outcome.type !== "completed") break;
    }
    const { winner } = tally;
    const hasTurnFailed = last !== null && last.state.type !== "accepted" && last.outcome.type !== "completed";
    if (winner && !hasTurnFailed) {
      const isCommitted = await this.#commit(JSON.stringify(winner.result), winner.stop).catch(() => false);
      if (!isCommitted) last = { state: { type: "superseded" }, outcome: last?.outcome ?? EMPTY_TURN };
    }
    return this.#toOutcome(last?.state ?? { type: "none" }, last?.outcome ?? EMPTY_TURN);
  }

  /** Runs one agent for one turn. */
  async #runAgent(
    rowTools: RunToolset | null,
    commit: (result: JsonObject, stop: boolean) => Promise<boolean>,
  ): Promise<AgentTurnResult> {
    const { job, task } = this.#options;
    const { item } = this.#lease;
    const report = createReportTool({
      jobId: job.id,
      itemId: item.itemId,
      definition: this.#common.report,
      check: task.check,
      commit,
    });
    const request = rowRequest(job, task, this.#common, item, this.#attachments);
    request.history.push(...this.#repair);
    const outcome = await runTurn({
      threadId: this.#lease.leaseToken,
      turnId: this.#lease.leaseToken,
      ...request,
      headers: { session_id: this.#lease.leaseToken, "x-openai-subagent": `agent_job:${job.id}` },
      tools: [...(rowTools?.tools ?? []).map((tool) => this.#withToolFaults(tool)), report],
      signal: this.#controller.signal,
      callModel: this.#callModel,
      endsTurn: (name, output) => {
        this.#transcript.addToolOutput(name, output);
        if (output.structured?.crashed === true) this.#toolCrash = output.text;
        return report.isFinished;
      },
      forcedTool: rowTools ? undefined : REPORT_TOOL_NAME,
      replyToText: (text) => report.reportFromText(text),
      maxModelCalls: rowTools ? MAX_CALLS_WITH_TOOLS : MAX_CALLS_WITHOUT_TOOLS,
    });
    return { state: report.state, outcome };
  }

  /** Counts tokens during the turn, because the report is committed before the turn ends. */
  #callModel: CallModel = async (request, signal, hooks) => {
    const answer = await this.#options.callModel(request, signal, {
      ...hooks,
      onRetry: (error, delayMs, next) => {
        this.#transcript.addRepairRequest(error.message);
        hooks?.onRetry?.(error, delayMs, next);
      },
      onWaiting: (waiting) => (waiting ? this.#deadline.pause() : this.#deadline.resume()),
    });
    this.#usage = addUsage(this.#usage, answer.usage);
    this.#transcript.addAnswer(answer);
    return answer;
  };

  async #commit(result: string, stop: boolean): Promise<boolean> {
    if (this.#deadline.expired) return false;
    // The row did not cause the wait for the database, so it does not count against the row timeout.
    this.#deadline.pause();
    try {
      const report = { result, usage: this.#usage, stop, transcript: this.#transcript.json };
      const item = await this.#options.ledger.complete(this.#lease, report);
      if (item) this.#reported = { item, stop };
      return item !== null;
    } catch (error) {
      // The model cannot fix a ledger error, so it does not get the error. The job stops with it.
      this.#ledgerFault = { cause: error };
      this.#controller.abort(error);
      throw error;
    } finally {
      this.#deadline.resume();
    }
  }

  #toOutcome(state: ReportState, outcome: TurnOutcome): RowOutcome {
    if (this.#ledgerFault) throw this.#ledgerFault.cause;
    if (this.#reported) return { type: "reported", usage: this.#usage, ...this.#reported };
    if (outcome.type === "failed" && outcome.error instanceof ModelError) {
      this.#usage = addUsage(this.#usage, outcome.error.usage);
    }
    if (this.#runSignal.aborted) return { type: "interrupted", usage: this.#usage };
    if (this.#hostLost !== null) return { type: "hostLost", message: this.#hostLost, usage: this.#usage };
    if (this.#deadline.expired) {
      const seconds = this.#options.job.settings.rowTimeoutMs / 1000;
      return this.#failed("timeout", `worker exceeded max runtime of ${seconds}s`);
    }
    if (state.type === "superseded") return { type: "superseded" };
    if (outcome.type === "failed") return outcomeOfError(outcome.error, this.#usage);
    if (state.type === "invalid") {
      return this.#failed("schema", `result does not fit the schema: ${state.faults.join("; ")}`);
    }
    if (outcome.type === "completed" && outcome.refusal !== null) {
      return this.#failed("refused", `the model refused: ${outcome.refusal}`, true);
    }
    if (this.#toolCrash !== null) return this.#failed("tool", this.#toolCrash);
    return this.#failed("no_report", "worker finished without calling report_agent_job_result");
  }

  #failed(errorClass: ErrorClass, message: string, final = false): RowOutcome {
    return { type: "failed", errorClass, message, usage: this.#usage, final };
  }
}

/** `noHost`: no host is available, so no other row would get tools. */
type OpenToolsResult = { type: "opened"; tools: RunToolset | null } | { type: "failed" | "noHost"; message: string };

function isHostOutage(error: unknown): error is Error {
  return error instanceof NoHostAvailableError || error instanceof OutageTimeoutError;
}

async function closeTools(tools: RunToolset | null): Promise<void> {
  if (!tools) return;
  // A tool that does not close is abandoned: the result is committed, and the slot is needed.
  await withDeadline(tools.close(), TOOLS_CLOSE_TIMEOUT_MS, "a row's tools to close").catch(() => undefined);
}
