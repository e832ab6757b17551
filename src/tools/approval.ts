import { Lanes } from "../async/lanes.ts";
import { hasPrefix, plainCommands } from "./shell-words.ts";

/** A command that wants to run, as a policy judges it. */
export interface ApprovalRequest {
  /**
   * `command`: the first attempt, behind the walls that are configured, if any. `unsandboxed`: the model asks to run
   * it outside of them. `retry`: the walls refused something, and it would be run again outside of them.
   */
  kind: "command" | "unsandboxed" | "retry";
  cmd: string;
  /** The words of each command in `cmd`; null when they cannot be told from the text. */
  commands: readonly (readonly string[])[] | null;
  workdir: string;
  /** What would stand around it. */
  sandbox: "none" | "bubblewrap";
  /** The model's question to the user. */
  justification?: string;
  /** The beginning of the command the model would like to have allowed from now on. Only ever a true beginning. */
  prefixRule?: readonly string[];
}

export type ApprovalVerdict = { type: "allow" } | { type: "ask" } | { type: "refuse"; reason: string };

/** What whoever was asked said, and how far it reaches. */
export type ApprovalAnswer =
  | { type: "allow"; remember?: { type: "session" } | { type: "prefix"; prefix: readonly string[] } }
  | { type: "refuse"; reason: string };

/** Decides what may run. Implemented by the embedding program, or one of the three that come along. */
export interface ApprovalPolicy {
  /** What can be said without asking anyone. */
  review(request: ApprovalRequest): ApprovalVerdict;
  /** Asks whoever can answer. Called for `ask` only, one request at a time. */
  ask(request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalAnswer>;
}

export type Permission = { type: "allowed" } | { type: "refused"; reason: string };

/** Stands between a policy and the commands: asks in turn, and remembers answers as far as they reach. */
export class ApprovalGate {
  readonly #policy: ApprovalPolicy;
  readonly #turns = new Lanes<"ask">();
  readonly #commands = new Set<string>();
  readonly #prefixes: { walled: boolean; prefix: readonly string[] }[] = [];

  constructor(policy: ApprovalPolicy) {
    this.#policy = policy;
  }

  async permit(request: ApprovalRequest, signal?: AbortSignal): Promise<Permission> {
    const verdict = this.#policy.review(request);
    switch (verdict.type) {
      case "allow":
        return { type: "allowed" };
      case "refuse":
        return { type: "refused", reason: verdict.reason };
      case "ask":
        return this.#turns.run("ask", () => this.#ask(request, signal));
    }
  }

  async #ask(request: ApprovalRequest, signal?: AbortSignal): Promise<Permission> {
    if (this.#isRemembered(request)) return { type: "allowed" };
    if (signal?.aborted) return { type: "refused", reason: "the call was cancelled" };
    const answer = await this.#policy.ask(request, signal);
    if (answer.type === "refuse") return { type: "refused", reason: answer.reason };
    this.#remember(request, answer.remember);
    return { type: "allowed" };
  }

  #isRemembered(request: ApprovalRequest): boolean {
    if (this.#commands.has(key(request))) return true;
    const { commands } = request;
    if (!commands) return false;
    // An answer for a command behind walls says nothing about the same command outside; the other way round it does.
    const walled = request.sandbox !== "none";
    const prefixes = this.#prefixes.filter((known) => walled || !known.walled);
    return commands.every((command) => prefixes.some((known) => hasPrefix(command, known.prefix)));
  }

  #remember(request: ApprovalRequest, reach: Extract<ApprovalAnswer, { type: "allow" }>["remember"]): void {
    if (reach?.type === "session") this.#commands.add(key(request));
    if (reach?.type === "prefix" && reach.prefix.length > 0)
      this.#prefixes.push({ walled: request.sandbox !== "none", prefix: [...reach.prefix] });
  }
}

/** The words of a command line for a request, and its prefix where it really is one. */
export function describeCommand(
  cmd: string,
  prefixRule: readonly string[] | undefined,
): Pick<ApprovalRequest, "commands" | "prefixRule"> {
  const commands = plainCommands(cmd);
  const isPrefix = prefixRule && commands?.every((command) => hasPrefix(command, prefixRule));
  return { commands, ...(isPrefix && { prefixRule }) };
}

function key({ cmd, workdir, sandbox }: ApprovalRequest): string {
  return JSON.stringify([cmd, workdir, sandbox]);
}
