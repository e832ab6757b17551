import type { RunTools } from "../agent/headless-run.ts";
import { abortable } from "../async/abort.ts";
import { type Clock, systemClock } from "../async/clock.ts";
import { Outage } from "../async/outage.ts";
import { messageOf } from "../base/error-message.ts";
import { HostLostError, NoHostError } from "../exec/host-loss.ts";
import type { ApprovalPolicy } from "../tools/policy/approval.ts";
import { type SandboxMode, sandboxOf } from "../tools/policy/sandbox-mode.ts";
import type { UnifiedExecEvent } from "../tools/sessions/exec-events.ts";
import type { Tool, ToolCallContext } from "../tools/tool.ts";
import type { ConnectedHost, ExecHost } from "./exec-host.ts";

export interface HostPoolOptions {
  hosts: readonly ExecHost[];
  sandbox: SandboxMode;
  /** With `workspace-write`: can be written as well as where commands run. */
  writable?: readonly string[];
  /** All commands of an agent find one /tmp behind their walls, until its tools are closed. Default: each has its own. */
  lastingTmp?: boolean | undefined;
  /** A person may be told how to attach to the terminals. For one agent; nobody watches each of many. Default: false. */
  isAttachable?: boolean | undefined;
  /** Shared by the tools of all agents; default: nobody is asked, and no command leaves the sandbox. */
  approval?: ApprovalPolicy | undefined;
  clock?: Clock;
  /** How long hosts that were there before may all be away. Default: not at all. */
  outagePatienceMs?: number | undefined;
  /** Aborted when the user wants out. */
  signal?: AbortSignal | undefined;
  /** Told when all hosts are away, and when one is back. */
  onTrouble?: ((message: string) => void) | undefined;
}

/** A host that could not be reached is left alone for this long while there are others. */
const REST_AFTER_FAILURE_MS = 5_000;

/** Spreads agents over hosts: each gets tools of its own on the host that has the fewest; one that is gone is passed over. */
export class HostPool implements AsyncDisposable {
  #members: Member[];
  #sandbox: SandboxMode;
  #writable: readonly string[];
  #lastingTmp: boolean;
  #isAttachable: boolean;
  #approval: ApprovalPolicy | undefined;
  #clock: Clock;
  #outage: Outage | null;
  /** A host that has run something may come back; one that never did is more likely a mistake in its address. */
  #hasOpened = false;

  constructor(options: HostPoolOptions) {
    this.#members = options.hosts.map((host) => ({ host, connected: null, inUse: 0, restsUntilMs: 0 }));
    this.#sandbox = options.sandbox;
    this.#writable = options.writable ?? [];
    this.#lastingTmp = options.lastingTmp ?? false;
    this.#isAttachable = options.isAttachable ?? false;
    this.#approval = options.approval;
    this.#clock = options.clock ?? systemClock;
    this.#outage = options.outagePatienceMs ? this.#createOutage(options, options.outagePatienceMs) : null;
  }

  /**
   * Rejects with what every host said when none can be used: at once when none ever could, else when patience is over.
   * A host that goes away is replaced as long as nothing has run there for these tools; after that, their calls reject with
   * a HostLostError. `processPrefix`: what the ids of their processes begin with.
   */
  async openTools(signal?: AbortSignal, processPrefix?: string): Promise<RunTools> {
    let current = await this.#open(signal, processPrefix);
    let hasRun = false;
    const call = async (name: string, args: unknown, context: ToolCallContext | undefined) => {
      for (;;) {
        const { tools, host } = current;
        const output = await settled(toolNamed(tools, name).call(args, context));
        if (host.isAlive()) {
          hasRun = true;
          if (output.status === "rejected") throw output.reason;
          return output.value;
        }
        if (hasRun)
          throw new HostLostError(`the host of this row's commands (${current.name}) has gone away`);
        await current.close();
        current = await this.#open(context?.signal, processPrefix);
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

  async #open(signal: AbortSignal | undefined, processPrefix: string | undefined): Promise<HostTools> {
    const open = () => this.#openAny(processPrefix);
    const opening = this.#outage && this.#hasOpened ? this.#outage.ride(open) : open();
    const opened = await abortable(opening, signal, (late) => late.close());
    this.#hasOpened = true;
    return opened;
  }

  async #openAny(processPrefix?: string): Promise<HostTools> {
    const failures: string[] = [];
    for (const member of this.#byPreference()) {
      member.inUse++;
      try {
        return await this.#openOn(member, processPrefix);
      } catch (error) {
        member.inUse--;
        member.restsUntilMs = this.#clock.monotonic() + REST_AFTER_FAILURE_MS;
        failures.push(`${member.host.name}: ${messageOf(error)}`);
      }
    }
    throw new NoHostError(`no host can run commands: ${failures.join("; ")}`);
  }

  #createOutage(options: HostPoolOptions, patienceMs: number): Outage {
    return new Outage({
      words: {
        waiting: "one can",
        back: "a host can run commands again",
        gaveUp: "no host could run commands",
      },
      isLoss: (error) => error instanceof NoHostError,
      probe: async () => (await this.#openAny()).close(),
      patienceMs,
      clock: this.#clock,
      signal: options.signal,
      tell: (message) => options.onTrouble?.(message),
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

  /** Hosts that failed a moment ago come last, not never: they may be all there are. */
  #byPreference(): Member[] {
    const now = this.#clock.monotonic();
    const rests = (member: Member) => (member.restsUntilMs > now ? 1 : 0);
    return this.#members.toSorted((a, b) => rests(a) - rests(b) || a.inUse - b.inUse);
  }

  async #openOn(member: Member, processPrefix: string | undefined): Promise<HostTools> {
    const host = await this.#connect(member);
    const { createUnifiedExec } = await import("../tools/unified-exec.ts");
    const exec = createUnifiedExec({
      processPrefix,
      backend: host.backend,
      cwd: host.cwd,
      hostSandboxes: host.sandboxes,
      sandbox: sandboxOf(this.#sandbox, [host.cwd, ...this.#writable], { lastingTmp: this.#lastingTmp }),
      approval: this.#approval,
      renewals: () => host.renewals(),
      shell: host.shell ?? undefined,
      attachUrl: this.#isAttachable ? host.attachUrl : null,
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

  /** Rows that want the same host wait for the same connection. */
  async #connect(member: Member): Promise<ConnectedHost> {
    const known = member.connected;
    if (known) {
      const connected = await known.catch(() => null);
      if (connected?.isAlive()) return connected;
      // Somebody else may have begun to connect anew meanwhile.
      if (member.connected === known) member.connected = null;
    }
    member.connected ??= member.host.connect();
    member.connected.catch(() => undefined);
    return member.connected;
  }
}

/** The tools of one agent on one host. */
interface HostTools {
  name: string;
  host: ConnectedHost;
  tools: readonly Tool[];
  events(): AsyncIterable<UnifiedExecEvent>;
  close(): Promise<void>;
}

interface Member {
  host: ExecHost;
  connected: Promise<ConnectedHost> | null;
  /** Agents that have tools there now. */
  inUse: number;
  restsUntilMs: number;
}

function toolNamed(tools: readonly Tool[], name: string): Tool {
  const tool = tools.find((candidate) => candidate.definition.name === name);
  if (!tool) throw new Error(`there is no tool ${name} on this host`);
  return tool;
}

async function settled<T>(task: Promise<T>): Promise<PromiseSettledResult<T>> {
  const [result] = await Promise.allSettled([task]);
  return result;
}
