import type { RunToolset } from "../agent/headless-run.ts";
import { abortable } from "../async/abort.ts";
import { type Clock, systemClock } from "../async/clock.ts";
import { OutageRetry } from "../async/outage-retry.ts";
import { errorMessage } from "../base/error-message.ts";
import { HostLostError, NoHostAvailableError } from "../exec/backend/host-errors.ts";
import { type NetworkChoice, type NetworkWords, narrowNetwork } from "../tools/network/network-rules.ts";
import type { ApprovalPolicy } from "../tools/policy/approval.ts";
import { type SandboxMode, sandboxChoiceFor } from "../tools/policy/sandbox-mode.ts";
import type { UnifiedExecEvent } from "../tools/sessions/exec-events.ts";
import type { Tool, ToolCallContext } from "../tools/tool.ts";
import type { ConnectedHost, ExecHost } from "./exec-host.ts";

export interface HostPoolOptions {
  hosts: readonly ExecHost[];
  sandbox: SandboxMode;
  /** Network of sandboxed commands. Default: off. */
  network?: NetworkChoice | undefined;
  /** Writable paths in addition to the working directory, for `workspace-write`. */
  writable?: readonly string[];
  /** The commands of an agent share one sandboxed /tmp until its tools are closed. Default: one /tmp per command. */
  sharedTmp?: boolean | undefined;
  /** Reports how users can attach to the terminals. For a single agent. Default: false. */
  isAttachable?: boolean | undefined;
  /** Shared by the tools of all agents. Default: no prompts, and no command leaves the sandbox. */
  approval?: ApprovalPolicy | undefined;
  clock?: Clock;
  /** How long all hosts may be unavailable after the first use. Default: no wait. */
  outageTimeoutMs?: number | undefined;
  /** Aborted when the user cancels. */
  signal?: AbortSignal | undefined;
  /** Called when all hosts are unavailable and when one is available again. */
  onWarning?: ((message: string) => void) | undefined;
}

/** Time for which an unreachable host is used only if no other is left. */
const BACKOFF_MS = 5_000;

/** Distributes agents over hosts. Each agent gets its own tools on the host with the fewest agents; lost hosts are skipped. */
export class HostPool implements AsyncDisposable {
  #members: PoolMember[];
  readonly #options: HostPoolOptions;
  #clock: Clock;
  #outage: OutageRetry | null;
  /** True once a host was available. Such a host may recover; a host that was never available may have a wrong address. */
  #hasOpened = false;

  constructor(options: HostPoolOptions) {
    this.#members = options.hosts.map((host) => ({ host, connected: null, inUse: 0, backoffUntilMs: 0 }));
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#outage = options.outageTimeoutMs ? this.#createOutage(options.outageTimeoutMs) : null;
  }

  /**
   * Opens tools on an available host. Rejects with the errors of all hosts if none is available: at once if none was ever
   * available, otherwise after `outageTimeoutMs`. A lost host is replaced until the first call has run on it; after that,
   * calls reject with a HostLostError. `processPrefix` is the prefix of their process ids. `networkWords` narrow the network.
   */
  async openTools(
    signal?: AbortSignal,
    processPrefix?: string,
    networkWords: NetworkWords | null = null,
  ): Promise<RunToolset> {
    const { network = { type: "off" } } = this.#options;
    const options: ToolsOptions = { processPrefix, network: narrowNetwork(network, networkWords) };
    let current = await this.#open(signal, options);
    let replacing: Promise<void> | null = null;
    let hasRun = false;
    const replaceCurrent = async (callSignal: AbortSignal | undefined) => {
      await current.close();
      current = await this.#open(callSignal, options);
    };
    const call = async (name: string, args: unknown, context: ToolCallContext | undefined) => {
      for (;;) {
        const used = current;
        const [output] = await Promise.allSettled([toolNamed(used.tools, name).call(args, context)]);
        if (used.host.isAlive()) {
          hasRun = true;
          if (output.status === "rejected") throw output.reason;
          return output.value;
        }
        // A concurrent call has replaced the host.
        if (used !== current) continue;
        if (hasRun) throw new HostLostError(`run command: the host ${used.name} was lost`);
        replacing ??= replaceCurrent(context?.signal).finally(() => {
          replacing = null;
        });
        await replacing;
      }
    };
    return {
      tools: current.tools.map((tool) => ({
        ...tool,
        call: (args, context) => call(tool.definition.name, args, context),
      })),
      events: () => current.events(),
      close: () => current.close(),
    };
  }

  async #open(signal: AbortSignal | undefined, options: ToolsOptions): Promise<HostTools> {
    const open = () => this.#openAny(options);
    const opening = this.#outage && this.#hasOpened ? this.#outage.run(open) : open();
    const opened = await abortable(opening, signal, (late) => late.close());
    this.#hasOpened = true;
    return opened;
  }

  async #openAny(options: ToolsOptions = {}): Promise<HostTools> {
    const failures: string[] = [];
    const errors: unknown[] = [];
    for (const member of this.#byLoad()) {
      member.inUse++;
      try {
        return await this.#openOn(member, options);
      } catch (error) {
        member.inUse--;
        member.backoffUntilMs = this.#clock.monotonic() + BACKOFF_MS;
        errors.push(error);
        failures.push(`${member.host.name}: ${errorMessage(error)}`);
      }
    }
    throw new NoHostAvailableError(`no host can run commands: ${failures.join("; ")}`, {
      cause: new AggregateError(errors),
    });
  }

  #createOutage(timeoutMs: number): OutageRetry {
    const { signal, onWarning } = this.#options;
    return new OutageRetry({
      messages: {
        waiting: "one can",
        back: "a host can run commands again",
        gaveUp: "no host could run commands",
      },
      isOutage: (error) => error instanceof NoHostAvailableError,
      probe: async () => (await this.#openAny()).close(),
      timeoutMs,
      clock: this.#clock,
      signal,
      report: (message) => onWarning?.(message),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(
      this.#members.map(async (member) => {
        const connected = await member.connected?.catch(() => null);
        await connected?.close();
      }),
    );
  }

  /** Sorts hosts by load. Recently failed hosts come last, because they may be the only ones. */
  #byLoad(): PoolMember[] {
    const now = this.#clock.monotonic();
    const backoffRank = (member: PoolMember) => (member.backoffUntilMs > now ? 1 : 0);
    return this.#members.toSorted((a, b) => backoffRank(a) - backoffRank(b) || a.inUse - b.inUse);
  }

  async #openOn(member: PoolMember, { processPrefix, network }: ToolsOptions): Promise<HostTools> {
    const host = await this.#connect(member);
    const { sandbox, writable = [], sharedTmp = false, isAttachable, approval } = this.#options;
    const { createUnifiedExec } = await import("../tools/unified-exec.ts");
    const exec = createUnifiedExec({
      processPrefix,
      backend: host.backend,
      cwd: host.cwd,
      hostSandboxes: host.sandboxes,
      sandbox: sandboxChoiceFor(sandbox, [host.cwd, ...writable], { sharedTmp, network }),
      approval,
      reopenCount: () => host.reopenCount(),
      shell: host.shell ?? undefined,
      attachUrl: isAttachable ? host.attachUrl : null,
    });
    let isOpen = true;
    return {
      name: member.host.name,
      host,
      tools: [...exec.tools],
      events: () => exec.events(),
      close: async () => {
        if (isOpen) member.inUse--;
        isOpen = false;
        await exec.close();
      },
    };
  }

  /** Concurrent callers share one connection attempt per host. */
  async #connect(member: PoolMember): Promise<ConnectedHost> {
    const known = member.connected;
    if (known) {
      const connected = await known.catch(() => null);
      if (connected?.isAlive()) return connected;
      // Another caller may have started a new connection meanwhile.
      if (member.connected === known) member.connected = null;
    }
    member.connected ??= member.host.connect();
    member.connected.catch(() => undefined);
    return member.connected;
  }
}

/** Options of the tools of one agent. */
interface ToolsOptions {
  processPrefix?: string | undefined;
  network?: NetworkChoice | undefined;
}

/** The tools of one agent on one host. */
interface HostTools {
  name: string;
  host: ConnectedHost;
  tools: readonly Tool[];
  events(): AsyncIterable<UnifiedExecEvent>;
  close(): Promise<void>;
}

interface PoolMember {
  host: ExecHost;
  connected: Promise<ConnectedHost> | null;
  /** Number of agents with tools on this host. */
  inUse: number;
  backoffUntilMs: number;
}

function toolNamed(tools: readonly Tool[], name: string): Tool {
  const tool = tools.find((candidate) => candidate.definition.name === name);
  if (!tool) throw new Error(`call ${name}: the host has no such tool`);
  return tool;
}
