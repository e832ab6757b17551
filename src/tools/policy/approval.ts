import { Lanes } from "../../async/keyed-queue.ts";
import { runsOthers } from "./command-analysis.ts";
import type { ShellChoice } from "./shell-choice.ts";
import { isReadable } from "./shell-choice.ts";
import { hasPrefix, plainCommands } from "./shell-parser.ts";

/** A command that wants to run, as a policy judges it: all that decides what is started, and nothing else. */
export interface ApprovalRequest {
  /**
   * `command`: the first attempt, behind the walls that are configured, if any. `unsandboxed`: the model asks to run
   * it outside of them. `retry`: the walls refused something, and it would be run again outside of them.
   */
  kind: "command" | "unsandboxed" | "retry";
  cmd: string;
  /** Exactly what is started inside of the walls, if any: the shell's absolute path, its flag, and `cmd`. */
  argv: readonly string[];
  /** `other`: neither the configured shell nor one of the system's own, so nothing in `cmd` says what runs. */
  shell: ShellChoice["kind"];
  tty: boolean;
  /** The words of each command in `cmd`; null when they cannot be told from the text, or depend on the shell. */
  commands: readonly (readonly string[])[] | null;
  /** Absolute, links followed. */
  workdir: string;
  /** What would stand around it. */
  sandbox: "none" | "bubblewrap";
  /** The model's question to the user. */
  justification?: string | undefined;
  /** The beginning of the command the model would like to have allowed from now on. Only ever a true beginning. */
  prefixRule?: readonly string[] | undefined;
}

export type ApprovalVerdict = { type: "allow" } | { type: "ask" } | { type: "refuse"; reason: string };

/** The answer to a question, and how far it reaches. */
export type ApprovalAnswer =
  | { type: "allow"; remember?: { type: "session" } | { type: "prefix"; prefix: readonly string[] } }
  | { type: "refuse"; reason: string };

/** Puts a question to the caller of a tool. */
export type AskCaller = (request: ApprovalRequest, signal?: AbortSignal) => Promise<ApprovalAnswer>;

/** Decides what may run. Implemented by the embedding program, or one of those that come along. */
export interface ApprovalPolicy {
  /** What can be said without asking anyone. */
  review(request: ApprovalRequest): ApprovalVerdict;
  /** Questions may be open side by side, so that an unanswered one holds up no other. */
  readonly together?: boolean;
  /**
   * Asks a person. Called for `ask` only, one request at a time unless `together` is set. `caller` asks the caller of the
   * tool, where it can be asked.
   */
  ask(request: ApprovalRequest, signal?: AbortSignal, caller?: AskCaller): Promise<ApprovalAnswer>;
}

/** What of a call matters to its approval. */
export interface Asking {
  signal?: AbortSignal;
  askCaller?: AskCaller;
}

export type Permission = { type: "allowed" } | { type: "refused"; reason: string };

/** Stands between a policy and the commands: asks in turn, and remembers answers as far as they reach. */
export class ApprovalGate {
  readonly #policy: ApprovalPolicy;
  readonly #turns = new Lanes<"ask">();
  readonly #commands = new Set<string>();
  readonly #prefixes: { walled: boolean; shell: string | undefined; prefix: readonly string[] }[] = [];

  constructor(policy: ApprovalPolicy) {
    this.#policy = policy;
  }

  async permit(request: ApprovalRequest, asking: Asking = {}): Promise<Permission> {
    const verdict = this.#policy.review(request);
    switch (verdict.type) {
      case "allow":
        return { type: "allowed" };
      case "refuse":
        return { type: "refused", reason: verdict.reason };
      case "ask":
        if (this.#policy.together) return this.#ask(request, asking);
        return this.#turns.run("ask", () => this.#ask(request, asking));
    }
  }

  async #ask(request: ApprovalRequest, { signal, askCaller }: Asking): Promise<Permission> {
    if (this.#isRemembered(request)) return { type: "allowed" };
    if (signal?.aborted) return { type: "refused", reason: "the call was cancelled" };
    const answer = await this.#policy.ask(request, signal, askCaller);
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
    const [shell] = request.argv;
    const prefixes = this.#prefixes.filter((known) => (walled || !known.walled) && known.shell === shell);
    return commands.every((command) => prefixes.some((known) => hasPrefix(command, known.prefix)));
  }

  #remember(request: ApprovalRequest, reach: Extract<ApprovalAnswer, { type: "allow" }>["remember"]): void {
    if (reach?.type === "session") this.#commands.add(key(request));
    if (reach?.type === "prefix" && reach.prefix.length > 0)
      this.#prefixes.push({
        walled: request.sandbox !== "none",
        shell: request.argv[0],
        prefix: [...reach.prefix],
      });
  }
}

/** What is started for a command line and what can be told of it; its prefix where it really is one. */
export function describeCommand(
  cmd: string,
  shell: ShellChoice,
  options: { login: boolean; prefixRule?: readonly string[] | undefined },
): Pick<ApprovalRequest, "cmd" | "argv" | "shell" | "commands" | "prefixRule"> {
  const { login, prefixRule } = options;
  const commands = isReadable(shell) ? plainCommands(cmd) : null;
  const isPrefix = prefixRule && commands?.every((command) => hasPrefix(command, prefixRule));
  return {
    cmd,
    argv: [shell.path, login ? "-lc" : "-c", cmd],
    shell: shell.kind,
    commands,
    // Whatever begins with a program that runs others is anything at all.
    prefixRule: isPrefix && !runsOthers(prefixRule) ? prefixRule : undefined,
  };
}

function key({ argv, workdir, tty, sandbox }: ApprovalRequest): string {
  return JSON.stringify([argv, workdir, tty, sandbox]);
}
