import { KeyedQueue } from "../../async/keyed-queue.ts";
import type { CredentialDefinition } from "../../protocol/network/credential-definition.ts";
import type { NetworkRules } from "../network/network-rules.ts";
import type { NetworkTarget } from "../network/network-target.ts";
import { isOpenEndedRunner } from "./command-analysis.ts";
import { flagWithoutStartUpFiles, isParsableShell, type ShellChoice } from "./shell-choice.ts";
import { hasPrefix, parsePlainCommands } from "./shell-parser.ts";

/** A command that requires a decision: everything that determines the started process, and nothing else. */
export interface ApprovalRequest {
  /**
   * `command`: the first attempt, in the configured sandbox. `unsandboxed`: the model requests to run it without a sandbox.
   * `retry`: another attempt without a sandbox after a denial. `network`: the running command requests a host that its
   * network rules ask about; `network` has the host.
   */
  kind: "command" | "unsandboxed" | "retry" | "network";
  cmd: string;
  /** The exact argv in the sandbox: the absolute path of the shell, its flag and `cmd`. */
  argv: readonly string[];
  /** `other`: neither the configured shell nor a system shell, so `cmd` does not determine what runs. */
  shell: ShellChoice["kind"];
  tty: boolean;
  /** The words of each command in `cmd`; null if the text does not determine them. */
  commands: readonly (readonly string[])[] | null;
  /** Absolute path without symbolic links. */
  workdir: string;
  /** The sandbox of this attempt. */
  sandbox: "none" | "bubblewrap";
  /**
   * Whether the command would run without a sandbox although sandboxed commands could have written its home directory, its
   * working directory or an enclosing repository. It may then run code that they wrote, regardless of its words.
   */
  sandboxWritable: boolean;
  /** Question of the model to the user. */
  justification?: string | undefined;
  /** Prefix that the model wants to be allowed from now on. Always a real prefix of all commands. */
  prefixRule?: readonly string[] | undefined;
  /** The requested host; set exactly if `kind` is `network`. */
  network?: NetworkApproval | undefined;
}

/** A host that a running command requests. The command waits for the answer. */
export interface NetworkApproval extends NetworkTarget {
  /** Reason for the question. */
  reason: string;
  /** Whether the answer `always` is possible, because a rules file is in use. */
  canRemember: boolean;
}

export type PolicyDecision = { type: "allow" } | { type: "ask" } | { type: "refuse"; reason: string };

/**
 * The user's answer and its scope. For a network request, `session` covers the same host and port, `process` only for this
 * command, and `always` adds the host to the rules file.
 */
export type ApprovalAnswer =
  | {
      type: "allow";
      remember?: { type: "session" | "process" | "always" } | { type: "prefix"; prefix: readonly string[] };
    }
  /** `isUnanswered`: the policy found no user, so a user of a web console may still answer. */
  | { type: "refuse"; reason: string; isUnanswered?: boolean };

/** Asks the user of a tool's caller. */
export type PromptCaller = (request: ApprovalRequest, signal?: AbortSignal) => Promise<ApprovalAnswer>;

/** Decides which commands may run. Applications implement it or use one of the built-in policies. */
export interface ApprovalPolicy {
  /** Decides without the user, if possible. */
  review(request: ApprovalRequest): PolicyDecision;
  /** Whether several prompts may be open at once, so that an unanswered prompt does not block the others. */
  readonly combined?: boolean;
  /**
   * Asks the user. Called only after `review` returned `ask`, one request at a time unless `combined` is set. `caller` asks
   * the user of the tool's caller; absent if that is impossible.
   */
  ask(request: ApprovalRequest, signal?: AbortSignal, caller?: PromptCaller): Promise<ApprovalAnswer>;
  /** Stores that commands may reach a host from now on. Absent: the answer `always` is not offered. */
  allowHost?: ((host: string) => Promise<void>) | undefined;
  /** Network rules of the policy. They apply to sandboxed commands only, so they require a sandbox. */
  readonly network?: NetworkRules | undefined;
  /** Credentials of a rules file. The host of the commands must define them. */
  readonly credentials?: readonly CredentialDefinition[] | undefined;
}

/** Returns a policy that decides as `policy`, except for the given members. */
export function overridePolicy(policy: ApprovalPolicy, members: Partial<ApprovalPolicy>): ApprovalPolicy {
  return {
    network: policy.network,
    credentials: policy.credentials,
    combined: policy.combined ?? false,
    allowHost: policy.allowHost?.bind(policy),
    review: (request) => policy.review(request),
    ask: (request, signal, caller) => policy.ask(request, signal, caller),
    ...members,
  };
}

/** Properties of a tool call that matter for its approval. */
export interface ApprovalCall {
  signal?: AbortSignal;
  /** Identifies the caller. All calls without it count as one caller. */
  caller?: object;
  askCaller?: PromptCaller;
}

type GateDecision = Exclude<PolicyDecision, { type: "ask" }>;

/** Applies a policy to commands: serializes prompts and remembers answers within their scope. */
export class ApprovalGate {
  readonly #policy: ApprovalPolicy;
  readonly #prompts = new KeyedQueue<"ask">();
  readonly #remembered = new WeakMap<object, RememberedApprovals>();

  constructor(policy: ApprovalPolicy) {
    this.#policy = policy;
  }

  /** Asks the user about a network request, without `review`. `isKnown` skips a prompt that became unnecessary. */
  async ask(
    request: ApprovalRequest,
    { signal, askCaller, isKnown }: Omit<ApprovalCall, "caller"> & { isKnown: () => boolean },
  ): Promise<ApprovalAnswer> {
    const ask = async (): Promise<ApprovalAnswer> => {
      if (isKnown()) return { type: "allow" };
      if (signal?.aborted) return { type: "refuse", reason: "the request was cancelled" };
      return this.#policy.ask(request, signal, askCaller);
    };
    return this.#policy.combined ? ask() : this.#prompts.run("ask", ask);
  }

  /** Whether `allowHost` stores hosts. */
  get canAllowHost(): boolean {
    return this.#policy.allowHost !== undefined;
  }

  async allowHost(host: string): Promise<void> {
    await this.#policy.allowHost?.(host);
  }

  async decide(request: ApprovalRequest, call: ApprovalCall = {}): Promise<GateDecision> {
    const decision = this.#policy.review(request);
    if (decision.type !== "ask") return decision;
    if (this.#policy.combined) return this.#ask(request, call);
    return this.#prompts.run("ask", () => this.#ask(request, call));
  }

  async #ask(request: ApprovalRequest, { signal, caller = this, askCaller }: ApprovalCall): Promise<GateDecision> {
    const remembered = this.#remembered.get(caller) ?? new RememberedApprovals();
    this.#remembered.set(caller, remembered);
    if (remembered.cover(request)) return { type: "allow" };
    if (signal?.aborted) return { type: "refuse", reason: "the call was cancelled" };
    const answer = await this.#policy.ask(request, signal, askCaller);
    if (answer.type === "refuse") return answer;
    remembered.add(request, answer.remember);
    return { type: "allow" };
  }
}

/** Approvals of one caller's user that apply to later calls. */
class RememberedApprovals {
  readonly #commands = new Set<string>();
  readonly #prefixes: {
    isSandboxed: boolean;
    shell: string | undefined;
    workdir: string;
    prefix: readonly string[];
  }[] = [];

  cover(request: ApprovalRequest): boolean {
    if (this.#commands.has(commandKey(request))) return true;
    const { commands } = request;
    if (!commands) return false;
    // An approval for a sandboxed command does not cover the unsandboxed one, but the reverse holds.
    const isSandboxed = request.sandbox !== "none";
    const [shell] = request.argv;
    const prefixes = this.#prefixes.filter(
      (known) =>
        (isSandboxed || !known.isSandboxed) &&
        known.shell === shell &&
        // In another directory, sandboxed commands may have prepared files that make the same words run other code.
        (!request.sandboxWritable || known.workdir === request.workdir),
    );
    return commands.every((command) => prefixes.some((known) => hasPrefix(command, known.prefix)));
  }

  add(request: ApprovalRequest, scope: Extract<ApprovalAnswer, { type: "allow" }>["remember"]): void {
    if (scope?.type === "session") this.#commands.add(commandKey(request));
    if (scope?.type === "prefix")
      this.#prefixes.push({
        isSandboxed: request.sandbox !== "none",
        shell: request.argv[0],
        workdir: request.workdir,
        prefix: [...scope.prefix],
      });
  }
}

/** Parses a command line into argv, commands and, if it is a real prefix, the prefix rule. */
export function describeCommand(
  cmd: string,
  shell: ShellChoice,
  options: { login: boolean; startUpFiles?: boolean; prefixRule?: readonly string[] | undefined },
): Pick<ApprovalRequest, "cmd" | "argv" | "shell" | "commands" | "prefixRule"> {
  const { login, startUpFiles = true, prefixRule } = options;
  const commands = isParsableShell(shell) ? parsePlainCommands(cmd) : null;
  const isPrefix = prefixRule && commands?.every((command) => hasPrefix(command, prefixRule));
  return {
    cmd,
    argv: [shell.path, startUpFiles ? (login ? "-lc" : "-c") : flagWithoutStartUpFiles(shell), cmd],
    shell: shell.kind,
    commands,
    // A prefix that ends with a runner, such as `env`, would allow every command.
    prefixRule: isPrefix && !isOpenEndedRunner(prefixRule) ? prefixRule : undefined,
  };
}

function commandKey({ argv, workdir, tty, sandbox }: ApprovalRequest): string {
  return JSON.stringify([argv, workdir, tty, sandbox]);
}
