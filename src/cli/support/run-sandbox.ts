import { realpathSync } from "node:fs";
import { shellJoin } from "../../base/text/shell-join.ts";
import type { StartParams } from "../../exec/exec-process.ts";
import type { CredentialDefinition } from "../../protocol/network/credential-definition.ts";
import { CommandNetwork } from "../../tools/network/command-network.ts";
import { renderBlocked } from "../../tools/network/network-activity.ts";
import { withNetworkAsker } from "../../tools/network/network-asker.ts";
import { NetworkAnswers } from "../../tools/network/network-questions.ts";
import type { NetworkChoice } from "../../tools/network/network-rules.ts";
import { ApprovalGate, type ApprovalPolicy } from "../../tools/policy/approval.ts";
import { neverAsk } from "../../tools/policy/never-ask.ts";
import { requireSupportedSandbox, toSandboxRequest } from "../../tools/policy/sandbox-choice.ts";
import { type SandboxMode, sandboxChoiceFor } from "../../tools/policy/sandbox-mode.ts";
import { type PartialValues, UsageError } from "../command.ts";
import { approvalPolicy } from "../options/approval-options.ts";
import { credentialsFromFlags } from "../options/credential-options.ts";
import { parseSandbox } from "../options/host-options.ts";
import {
  asksAboutNetwork,
  networkFromFlags,
  parseNetworkFlag,
  type SANDBOX_OPTIONS,
} from "../options/network-options.ts";
import { openRunPrompt } from "../terminal/run-prompt.ts";

const OPTIONS = {
  detach: { type: "boolean" },
  user: { type: "string" },
  connect: { type: "string" },
} as const;

type RunSandboxValues = PartialValues<typeof OPTIONS & typeof SANDBOX_OPTIONS>;

/** The sandbox of `procwire run`. */
export interface RunSandbox {
  mode: SandboxMode;
  writable: readonly string[];
  /** Rules of `--rules`. */
  approval: ApprovalPolicy;
  network: NetworkChoice;
  /** Definitions for the local host. */
  credentials: readonly CredentialDefinition[];
  /** Whether a user must be able to answer network questions. */
  asks: boolean;
}

/** Parses the sandbox options. Returns null without a sandbox. */
export async function parseRunSandbox(
  values: RunSandboxValues,
  { isLocal }: { isLocal: boolean },
): Promise<RunSandbox | null> {
  const mode = parseSandbox(values.sandbox);
  const words = parseNetworkFlag(values.network, mode);
  const writable = values.writable ?? [];
  if (writable.length > 0 && mode !== "workspace-write")
    throw new UsageError("--writable requires --sandbox workspace-write");
  const approval = (await approvalPolicy(values.rules, undefined)) ?? neverAsk();
  const credentials = credentialsFromFlags(values.credential, approval, { isLocal });
  if (mode === "none") {
    if (values.rules !== undefined) throw new UsageError("--rules requires --sandbox read-only or workspace-write");
    networkFromFlags(words, undefined, mode, credentials);
    return null;
  }
  if (values.user !== undefined)
    throw new UsageError("--user conflicts with --sandbox: a sandboxed command cannot change its user");
  const asks = asksAboutNetwork(words);
  if (asks && values.detach)
    throw new UsageError("--network ask conflicts with --detach: no user could answer; give allow:DOMAIN");
  // Questions may add the section.
  if (values.rules !== undefined && !approval.network && !asks)
    throw new UsageError(`--rules ${values.rules}: the file has no section [network]`);
  const network = networkFromFlags(words, approval, mode, credentials);
  return { mode, writable, approval, network, credentials: credentials.definitions, asks };
}

/** An open sandbox of one command: the parameters of its start, and the terminal for network questions. */
export interface OpenRunSandbox extends Disposable {
  startParams: Partial<StartParams>;
  /** Takes typed input while a question is open; returns false if the input belongs to the command. */
  takeInput: ((chunk: Uint8Array) => boolean) | undefined;
  /** Returns one line per blocked network target, and its explanation. */
  blockedLines(): string[];
}

/** Prepares the sandbox of a command. Throws if the host does not support it. */
export async function openRunSandbox(
  { mode, writable, approval, network, asks }: RunSandbox,
  { argv, tty }: Pick<StartParams, "argv" | "tty">,
  cwd: string,
  { sandboxes, isLocal }: { sandboxes: readonly string[]; isLocal: boolean },
): Promise<OpenRunSandbox> {
  const roots = [cwd, ...writable].map((root) => (isLocal ? realpathSync(root) : root));
  const choice = sandboxChoiceFor(mode, roots, { network });
  requireSupportedSandbox(choice, sandboxes);
  const sandbox = toSandboxRequest(choice);
  if (network.type !== "managed")
    return {
      startParams: { sandbox },
      takeInput: undefined,
      blockedLines: () => [],
      [Symbol.dispose]: () => undefined,
    };
  const prompt = asks ? openRunPrompt(tty) : null;
  const gate = new ApprovalGate(prompt ? withNetworkAsker(approval, prompt.policy) : approval);
  const managed = new CommandNetwork({
    network,
    command: {
      kind: "command",
      cmd: shellJoin(argv),
      argv,
      shell: "system",
      tty,
      commands: [argv],
      workdir: cwd,
      sandbox: "bubblewrap",
      sandboxWritable: false,
    },
    call: {},
    gate,
    answers: new NetworkAnswers(gate, () => undefined),
  });
  return {
    startParams: { sandbox, ...managed.startParams },
    takeInput: prompt?.takeInput,
    blockedLines: () => renderBlocked(managed.takeBlocked()),
    [Symbol.dispose]: () => prompt?.[Symbol.dispose](),
  };
}
