import type { Interface } from "node:readline";
import { createInterface } from "node:readline";
import { Lanes } from "../../async/lanes.ts";
import type { ApprovalAnswer, ApprovalPolicy, ApprovalRequest } from "./approval.ts";
import { questionOf, shownPrefix } from "./question.ts";

export interface AskOnTerminalOptions {
  /** Default: the program's own input, and its error output, since its output may be a wire. */
  input?: NodeJS.ReadableStream;
  output?: NodeJS.WritableStream;
  /** `unsandboxed`: commands behind walls run without asking. Default. */
  askAbout?: "everything" | "unsandboxed";
}

/**
 * Asks a person. Without an answer (the input has ended) it is a no. Several sets of tools may share it: it asks one thing
 * at a time.
 */
export function askOnTerminal(options: AskOnTerminalOptions = {}): ApprovalPolicy {
  const { input = process.stdin, output = process.stderr, askAbout = "unsandboxed" } = options;
  const turns = new Lanes<"ask">();
  let lines: LineQueue | null = null;
  const ask = async (request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalAnswer> => {
    if (signal?.aborted) return { type: "refuse", reason: "the call was cancelled" };
    // What is already on its way to the terminal, such as that the command was asked for, comes first.
    await new Promise((resolve) => setImmediate(resolve));
    lines ??= new LineQueue(input);
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

/** Reads lines only while somebody waits for one; those that came along with an earlier one are kept. */
class LineQueue {
  readonly #lines: Interface;
  #queue: string[] = [];
  #ended = false;
  #wake: () => void = () => undefined;

  constructor(input: NodeJS.ReadableStream) {
    this.#lines = createInterface({ input, terminal: false });
    this.#lines.on("line", (line) => {
      this.#queue.push(line);
      this.#wake();
    });
    this.#lines.on("close", () => {
      this.#ended = true;
      this.#wake();
    });
  }

  /** The next line, or null when there will be none, or when the wait was given up. */
  async next(signal?: AbortSignal): Promise<string | null> {
    // A reader that goes on would keep the program alive, and take what others want to read.
    this.#lines.resume();
    try {
      while (this.#queue.length === 0 && !this.#ended && !signal?.aborted) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
          signal?.addEventListener("abort", () => resolve(), { once: true });
        });
      }
      return this.#queue.shift() ?? null;
    } finally {
      if (!this.#ended) this.#lines.pause();
    }
  }
}
