import type { CallModel } from "../../agent/api/model-caller.ts";
import { ModelError } from "../../agent/api/model-error.ts";
import type { JsonObject } from "../../agent/api/response-events.ts";
import type { RunTools } from "../../agent/headless-run.ts";
import { addUsage, NO_USAGE, type TokenUsage } from "../../agent/token-usage.ts";
import { runTurn, type TurnOutcome } from "../../agent/turn.ts";
import type { Clock } from "../../async/clock.ts";
import { withDeadline } from "../../async/deadline.ts";
import { OutageError } from "../../async/outage.ts";
import { messageOf } from "../../base/error-message.ts";
import { HostLostError, NoHostError } from "../../exec/host-loss.ts";
import type { Tool } from "../../tools/tool.ts";
import type { ErrorClass, ItemRecord, JobRecord } from "../job.ts";
import type { Claim, JobLedger } from "../ledger/job-ledger.ts";
import { batchRepair } from "./batch-conversation.ts";
import type { CompiledTask } from "./compiled-task.ts";
import { Ballots } from "./majority-vote.ts";
import { createReportTool, REPORT_TOOL_NAME, type ReportState } from "./report-tool.ts";
import { RowDeadline } from "./row-deadline.ts";
import { type EndedAttempt, outcomeOfError, type RowAgent, type RowOutcome } from "./row-outcome.ts";
import { type CommonPrompt, commonPrompt, rowAttachments, rowRequest } from "./row-request.ts";
import { Transcript } from "./transcript.ts";

/** Opens the tools of a row agent besides the report; null: none. The signal is aborted when the row is given up. */
export type OpenRowTools = (
  job: JobRecord,
  rowIndex: number,
  signal: AbortSignal,
) => Promise<RunTools | null>;

/** Everything the rows of one job have in common. */
export interface RowAgentOptions {
  job: JobRecord;
  ledger: JobLedger;
  task: CompiledTask;
  callModel: CallModel;
  /** Opened for one row and closed after it. */
  openTools?: OpenRowTools | undefined;
  clock: Clock;
}

/** An agent that can call only the report needs no more model calls than this. */
const MAX_CALLS_WITHOUT_TOOLS = 8;
/** An agent with tools may need many steps; beyond this it is in a loop. */
const MAX_CALLS_WITH_TOOLS = 200;
/** Closing a row's tools may block its lane no longer than this. */
const TOOLS_CLOSE_MS = 5_000;

/** A row that lost its host this often is considered the cause. */
const MAX_HOSTS_LOST = 3;

/** Makes the function that works on one row: one agent, one turn, which ends with the accepted report. */
export function createRowAgent(options: RowAgentOptions): RowAgent {
  const common = commonPrompt(options.job);
  const hostsLost = new Map<string, number>();
  return async (claim, signal) => {
    const attempt = new RowAttempt(options, claim, common, signal);
    const outcome = await attempt.run();
    const { itemId } = claim.item;
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
interface TurnEnd {
  state: ReportState;
  outcome: TurnOutcome;
}

const NOTHING_SAID: TurnOutcome = { type: "completed", usage: NO_USAGE, lastMessage: null, refusal: null };

class RowAttempt {
  #options: RowAgentOptions;
  #claim: Claim;
  #common: CommonPrompt;
  #outer: AbortSignal;
  #usage: TokenUsage = NO_USAGE;
  #transcript = new Transcript();
  #reported: { item: ItemRecord; stop: boolean } | null = null;
  #ledgerFault: { cause: unknown } | null = null;
  #toolCrash: string | null = null;
  #hostLost: string | null = null;
  #attachments: JsonObject[] = [];
  /** The answer from a batch that needs repair. */
  #repair: JsonObject[] = [];
  #controller = new AbortController();
  #deadline: RowDeadline;

  constructor(options: RowAgentOptions, claim: Claim, common: CommonPrompt, signal: AbortSignal) {
    this.#options = options;
    this.#claim = claim;
    this.#common = common;
    this.#outer = signal;
    this.#deadline = new RowDeadline(options.job.settings.rowTimeoutMs, options.clock, () =>
      this.#controller.abort(new Error("the row's time is up")),
    );
  }

  async run(): Promise<EndedAttempt> {
    const outcome = await this.#run();
    return { ...outcome, transcript: this.#transcript.json };
  }

  async #run(): Promise<RowOutcome> {
    const onAbort = () => this.#controller.abort(this.#outer.reason);
    if (this.#outer.aborted) onAbort();
    else this.#outer.addEventListener("abort", onAbort, { once: true });
    try {
      const opened = await this.#openTools();
      if (opened.type !== "opened") return this.#judgeNoTools(opened);
      try {
        this.#attachments = await rowAttachments(this.#options.job, this.#claim.item);
      } catch (error) {
        await closeTools(opened.tools);
        return this.#failed("spawn", messageOf(error), true);
      }
      try {
        this.#repair = await batchRepair(this.#options.ledger, this.#claim.item);
        return await this.#work(opened.tools);
      } finally {
        await closeTools(opened.tools);
      }
    } finally {
      this.#deadline.cancel();
      this.#outer.removeEventListener("abort", onAbort);
    }
  }

  async #openTools(): Promise<OpenedTools | NoTools> {
    const { openTools, job } = this.#options;
    // Waiting for a host does not count as the row's time.
    this.#deadline.pause();
    try {
      const { signal } = this.#controller;
      return { type: "opened", tools: (await openTools?.(job, this.#claim.item.rowIndex, signal)) ?? null };
    } catch (error) {
      const message = messageOf(error);
      return { type: isOfAllHosts(error) ? "noHost" : "failed", message };
    } finally {
      this.#deadline.resume();
    }
  }

  #judgeNoTools({ type, message }: NoTools): RowOutcome {
    if (this.#outer.aborted) return { type: "interrupted", usage: this.#usage };
    return type === "noHost" ? { type: "wall", message, usage: this.#usage } : this.#failed("spawn", message);
  }

  /** A tool whose host is gone ends the attempt: without it the model could only guess a result. */
  #guarded(tool: Tool): Tool {
    return {
      ...tool,
      call: async (args, context) => {
        try {
          return await tool.call(args, context);
        } catch (error) {
          if (error instanceof HostLostError || isOfAllHosts(error)) {
            this.#hostLost = error.message;
            this.#controller.abort(error);
          }
          throw error;
        }
      },
    };
  }

  async #work(rowTools: RunTools | null): Promise<RowOutcome> {
    const { votes = 1 } = this.#options.job.task;
    if (votes > 1) return this.#vote(rowTools, votes);
    const { state, outcome } = await this.#ask(rowTools, (result, stop) =>
      this.#commit(JSON.stringify(result), stop),
    );
    return this.#judge(state, outcome);
  }

  /** Asks several agents one after another, until no further vote can change the majority. */
  async #vote(rowTools: RunTools | null, votes: number): Promise<RowOutcome> {
    const ballots = new Ballots(votes);
    let last: TurnEnd | null = null;
    for (let vote = 0; vote < votes && !ballots.isDecided; vote++) {
      last = await this.#ask(rowTools, async (result, stop) => {
        ballots.add(result, stop);
        return true;
      });
      // An agent without an answer has no vote. An error that broke its turn would break the next one too.
      if (last.state.type !== "accepted" && last.outcome.type !== "completed") break;
    }
    const { winner } = ballots;
    const isBroken = last !== null && last.state.type !== "accepted" && last.outcome.type !== "completed";
    if (winner && !isBroken) {
      const isTaken = await this.#commit(JSON.stringify(winner.result), winner.stop).catch(() => false);
      if (!isTaken) last = { state: { type: "superseded" }, outcome: last?.outcome ?? NOTHING_SAID };
    }
    return this.#judge(last?.state ?? { type: "none" }, last?.outcome ?? NOTHING_SAID);
  }

  /** One agent, one turn. */
  async #ask(
    rowTools: RunTools | null,
    commit: (result: JsonObject, stop: boolean) => Promise<boolean>,
  ): Promise<TurnEnd> {
    const { job, task } = this.#options;
    const { item } = this.#claim;
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
      threadId: this.#claim.token,
      turnId: this.#claim.token,
      ...request,
      headers: { session_id: this.#claim.token, "x-openai-subagent": `agent_job:${job.id}` },
      tools: [...(rowTools?.tools ?? []).map((tool) => this.#guarded(tool)), report],
      signal: this.#controller.signal,
      callModel: this.#callModel,
      endsTurn: (name, output) => {
        this.#transcript.returned(name, output);
        if (output.structured?.crashed === true) this.#toolCrash = output.text;
        return report.settled;
      },
      forcedTool: rowTools ? undefined : REPORT_TOOL_NAME,
      replyToWords: (words) => report.takeWords(words),
      maxModelCalls: rowTools ? MAX_CALLS_WITH_TOOLS : MAX_CALLS_WITHOUT_TOOLS,
    });
    return { state: report.state, outcome };
  }

  /** Counts tokens as they are spent, because the report is committed in the middle of the turn. */
  #callModel: CallModel = async (request, signal, hooks) => {
    const answer = await this.#options.callModel(request, signal, {
      ...hooks,
      onRetry: (error, delayMs, next) => {
        this.#transcript.askedAgain(error.message);
        hooks?.onRetry?.(error, delayMs, next);
      },
      onWaiting: (waiting) => (waiting ? this.#deadline.pause() : this.#deadline.resume()),
    });
    this.#usage = addUsage(this.#usage, answer.usage);
    this.#transcript.answered(answer);
    return answer;
  };

  async #commit(result: string, stop: boolean): Promise<boolean> {
    if (this.#deadline.expired) return false;
    // Waiting for the ledger's database is not the row's fault and does not count as its time.
    this.#deadline.pause();
    try {
      const report = { result, usage: this.#usage, stop, transcript: this.#transcript.json };
      const item = await this.#options.ledger.complete(this.#claim, report);
      if (item) this.#reported = { item, stop };
      return item !== null;
    } catch (error) {
      // The model cannot help with a ledger error: it is not told, and the job stops with this error.
      this.#ledgerFault = { cause: error };
      this.#controller.abort(error);
      throw error;
    } finally {
      this.#deadline.resume();
    }
  }

  #judge(state: ReportState, outcome: TurnOutcome): RowOutcome {
    if (this.#ledgerFault) throw this.#ledgerFault.cause;
    if (this.#reported) return { type: "reported", usage: this.#usage, ...this.#reported };
    if (outcome.type === "failed" && outcome.error instanceof ModelError) {
      this.#usage = addUsage(this.#usage, outcome.error.usage);
    }
    if (this.#outer.aborted) return { type: "interrupted", usage: this.#usage };
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

interface OpenedTools {
  type: "opened";
  tools: RunTools | null;
}

interface NoTools {
  /** `noHost`: no host is available, so no other row would get tools either. */
  type: "failed" | "noHost";
  message: string;
}

function isOfAllHosts(error: unknown): error is Error {
  return error instanceof NoHostError || error instanceof OutageError;
}

async function closeTools(tools: RunTools | null): Promise<void> {
  if (!tools) return;
  // A tool that does not close is abandoned: the row's result is committed and the lane is needed.
  await withDeadline(tools.close(), TOOLS_CLOSE_MS, "a row's tools to close").catch(() => undefined);
}
