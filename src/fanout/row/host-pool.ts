import type { RunTools } from "../../agent/headless-run.ts";
import { type Clock, systemClock } from "../../async/clock.ts";
import type { ExecBackend } from "../../exec/exec-process.ts";
import type { ApprovalPolicy } from "../../tools/approval.ts";
import type { SandboxChoice } from "../../tools/sandbox-attempt.ts";

/** A machine that can run commands: this one, or a server far away. */
export interface ExecHost {
  /** What errors call it. */
  name: string;
  connect(): Promise<ConnectedHost>;
}

export interface ConnectedHost {
  backend: ExecBackend;
  /** Where commands run unless they say otherwise: absolute, on that machine. */
  cwd: string;
  /** Null: the host's /bin/bash. */
  shell: string | null;
  /** The sandboxes it says it has. */
  sandboxes: readonly string[];
  /** False once it has been lost for good. */
  isAlive(): boolean;
  /** How often it was lost and begun anew without being given up. */
  renewals(): number;
  close(): Promise<void>;
}

export type SandboxMode = "none" | "read-only" | "workspace-write";

export interface HostPoolOptions {
  hosts: readonly ExecHost[];
  sandbox: SandboxMode;
  /** Shared by the tools of all agents; default: nobody is asked, and no command leaves the sandbox. */
  approval?: ApprovalPolicy | undefined;
  clock?: Clock;
}

/** A host that could not be reached is left alone for this long while there are others. */
const REST_AFTER_FAILURE_MS = 5_000;

/** Spreads agents over hosts: each gets tools of its own on the host that has the fewest; one that is gone is passed over. */
export class HostPool implements AsyncDisposable {
  #members: Member[];
  #sandbox: SandboxMode;
  #approval: ApprovalPolicy | undefined;
  #clock: Clock;

  constructor(options: HostPoolOptions) {
    this.#members = options.hosts.map((host) => ({ host, connected: null, inUse: 0, restsUntilMs: 0 }));
    this.#sandbox = options.sandbox;
    this.#approval = options.approval;
    this.#clock = options.clock ?? systemClock;
  }

  /** Rejects with what every host said when none can be used. */
  async openTools(): Promise<RunTools> {
    const failures: string[] = [];
    for (const member of this.#byPreference()) {
      member.inUse++;
      try {
        return await this.#openOn(member);
      } catch (error) {
        member.inUse--;
        member.restsUntilMs = this.#clock.steadyNow() + REST_AFTER_FAILURE_MS;
        failures.push(`${member.host.name}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    throw new Error(`no host can run commands: ${failures.join("; ")}`);
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
    const now = this.#clock.steadyNow();
    const rests = (member: Member) => (member.restsUntilMs > now ? 1 : 0);
    return this.#members.toSorted((a, b) => rests(a) - rests(b) || a.inUse - b.inUse);
  }

  async #openOn(member: Member): Promise<RunTools> {
    const host = await this.#connect(member);
    const { createUnifiedExec } = await import("../../tools/unified-exec.ts");
    const exec = createUnifiedExec({
      backend: host.backend,
      cwd: host.cwd,
      hostSandboxes: host.sandboxes,
      sandbox: sandboxChoice(this.#sandbox, host.cwd),
      approval: this.#approval,
      renewals: () => host.renewals(),
      ...(host.shell === null ? {} : { shell: host.shell }),
    });
    return {
      tools: [...exec.tools],
      events: () => exec.events(),
      close: async () => {
        member.inUse--;
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

interface Member {
  host: ExecHost;
  connected: Promise<ConnectedHost> | null;
  /** Agents that have tools there now. */
  inUse: number;
  restsUntilMs: number;
}

function sandboxChoice(mode: SandboxMode, cwd: string): SandboxChoice {
  if (mode === "none") return { type: "none" };
  return { type: "bubblewrap", writableRoots: mode === "workspace-write" ? [cwd] : [], network: false };
}
