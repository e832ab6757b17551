import { KeyedQueue } from "../../async/keyed-queue.ts";
import { waitForTick } from "../../async/slices.ts";
import { shellQuoteAll } from "../../base/text/printable-text.ts";
import { checkOptions, oneOf, optionsOf, text } from "../../exec/options/option-schema.ts";
import { readableKind, writableKind } from "../../exec/options/process-options.ts";
import { REJECTED_BY_USER } from "../network/network-denial-compat.ts";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest, NetworkApproval } from "./approval.ts";
import { approvalPrompt } from "./approval-prompt.ts";
import { discardPendingInput, LineReader, type TerminalInput } from "./line-reader.ts";

export interface AskOnTerminalOptions {
  /** Default: stdin and stderr of this process. Not stdout, which may carry a protocol. */
  input?: NodeJS.ReadableStream;
  output?: NodeJS.WritableStream;
  /**
   * Path of the terminal behind `input`, for example /dev/tty. Input typed before a prompt is discarded. Default: stdin if
   * it is a terminal. Lines of a pipe are never discarded: they answer the prompts in order.
   */
  terminalPath?: string | undefined;
  /** Default: `unsandboxed`, sandboxed commands run without an approval. */
  askAbout?: "everything" | "unsandboxed";
}

const askOptions = optionsOf<AskOnTerminalOptions>(() => ({
  input: readableKind,
  output: writableKind,
  terminalPath: text,
  askAbout: oneOf("everything", "unsandboxed"),
}));

/**
 * Approval policy that asks the user on a terminal. End of input rejects the command, and input typed ahead is ignored.
 * Several tool sets may share the policy: it shows one prompt at a time.
 */
export function askOnTerminal(options: AskOnTerminalOptions = {}): ApprovalPolicy {
  checkOptions("askOnTerminal", options, askOptions);
  const { input = process.stdin, output = process.stderr, askAbout = "unsandboxed" } = options;
  const { terminalPath = input === process.stdin ? "/dev/stdin" : undefined } = options;
  const prompts = new KeyedQueue<"ask">();
  let lines: LineReader | null = null;
  const ask = async (request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalAnswer> => {
    if (signal?.aborted) return { type: "refuse", reason: "the call was cancelled" };
    // Lets pending output, for example the display of the command, reach the terminal first.
    await waitForTick();
    lines ??= new LineReader(input);
    if (terminalPath !== undefined && isTerminal(input)) {
      discardPendingInput(input, terminalPath);
      lines.discard();
    }
    output.write(`\n${approvalPrompt(request)}\n`);
    for (;;) {
      output.write(`${formatChoices(request)} `);
      const answer = await lines.next(signal);
      if (signal?.aborted) output.write("\nThe question was answered elsewhere, or the request has ended.\n");
      if (answer === null) return { type: "refuse", reason: "the user did not answer" };
      const parsed = parseAnswer(answer, request);
      if (parsed) return parsed;
    }
  };
  return {
    review: ({ sandbox }) => (askAbout === "unsandboxed" && sandbox !== "none" ? { type: "allow" } : { type: "ask" }),
    ask: (request, signal) => prompts.run("ask", () => ask(request, signal)),
  };
}

function isTerminal(input: NodeJS.ReadableStream): input is NodeJS.ReadableStream & TerminalInput {
  return "setRawMode" in input;
}

function formatChoices({ prefixRule, network }: ApprovalRequest): string {
  if (network) {
    const always = network.canRemember ? ", w = always (written to the rules file)" : "";
    return `y = just this once, c = for this command, a = for this session${always}, n = no:`;
  }
  const prefix = prefixRule ? `, p = always when it begins with \`${shellQuoteAll(prefixRule)}\`` : "";
  return `y = yes, a = always this command${prefix}, n = no:`;
}

function parseAnswer(answer: string, { prefixRule, network }: ApprovalRequest): ApprovalAnswer | null {
  if (network) return parseNetworkAnswer(answer, network);
  switch (answer.trim().toLowerCase()) {
    case "y":
    case "yes":
      return { type: "allow" };
    case "a":
    case "always":
      return { type: "allow", remember: { type: "session" } };
    case "p":
      return prefixRule ? { type: "allow", remember: { type: "prefix", prefix: prefixRule } } : null;
    case "n":
    case "no":
      return { type: "refuse", reason: "the user rejected it" };
    default:
      return null;
  }
}

function parseNetworkAnswer(answer: string, { canRemember }: NetworkApproval): ApprovalAnswer | null {
  switch (answer.trim().toLowerCase()) {
    case "y":
    case "yes":
      return { type: "allow" };
    case "c":
      return { type: "allow", remember: { type: "process" } };
    case "a":
      return { type: "allow", remember: { type: "session" } };
    case "w":
    case "always":
      return canRemember ? { type: "allow", remember: { type: "always" } } : null;
    case "n":
    case "no":
      return { type: "refuse", reason: REJECTED_BY_USER };
    default:
      return null;
  }
}
