import { ReadStream } from "node:tty";
import { Lanes } from "../../async/keyed-queue.ts";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "./approval.ts";
import { discardTyped, TypedLines } from "./line-reader.ts";
import { questionOf, shownPrefix } from "./question.ts";

export interface AskOnTerminalOptions {
  /** Default: the program's own input, and its error output, since its output may be a wire. */
  input?: NodeJS.ReadableStream;
  output?: NodeJS.WritableStream;
  /**
   * A terminal: another path to `input`, such as /dev/tty. What was typed before a question is shown then answers no
   * question. Default: the program's own input where that is a terminal. Lines from elsewhere, such as a pipe, are answers in
   * their order, whenever they came.
   */
  terminalPath?: string | undefined;
  /** `unsandboxed`: commands behind walls run without asking. Default. */
  askAbout?: "everything" | "unsandboxed";
}

/**
 * Asks a person. Without an answer (the input has ended) it is a no, and what was typed ahead is no answer. Several sets of
 * tools may share it: it asks one thing at a time.
 */
export function askOnTerminal(options: AskOnTerminalOptions = {}): ApprovalPolicy {
  const { input = process.stdin, output = process.stderr, askAbout = "unsandboxed" } = options;
  const { terminalPath = input === process.stdin ? "/dev/stdin" : undefined } = options;
  const turns = new Lanes<"ask">();
  let lines: TypedLines | null = null;
  const ask = async (request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalAnswer> => {
    if (signal?.aborted) return { type: "refuse", reason: "the call was cancelled" };
    // What is already on its way to the terminal, such as that the command was asked for, comes first.
    await new Promise((resolve) => setImmediate(resolve));
    lines ??= new TypedLines(input);
    if (terminalPath !== undefined && input instanceof ReadStream) {
      discardTyped(input, terminalPath);
      lines.discard();
    }
    output.write(`\n${questionOf(request)}\n`);
    for (;;) {
      output.write(`${choicesOf(request)} `);
      const answer = await lines.next(signal);
      if (answer === null) return { type: "refuse", reason: "nobody answered" };
      const understood = understand(answer, request);
      if (understood) return understood;
    }
  };
  return {
    review: ({ sandbox }) =>
      askAbout === "unsandboxed" && sandbox !== "none" ? { type: "allow" } : { type: "ask" },
    ask: (request, signal) => turns.run("ask", () => ask(request, signal)),
  };
}

function choicesOf({ prefixRule }: ApprovalRequest): string {
  const prefix = prefixRule ? `, p = always when it begins with \`${shownPrefix(prefixRule)}\`` : "";
  return `y = yes, a = always this command${prefix}, n = no:`;
}

function understand(answer: string, { prefixRule }: ApprovalRequest): ApprovalAnswer | null {
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
      return { type: "refuse", reason: "the user said no" };
    default:
      return null;
  }
}
