import { PassThrough } from "node:stream";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import { askOnTerminal } from "../../tools/policy/ask-on-terminal.ts";
import { UsageError } from "../usage-error.ts";
import { openControllingTerminal } from "./controlling-terminal.ts";

/** Questions to the user of a command that runs in the foreground. */
export interface RunPrompt extends Disposable {
  policy: ApprovalPolicy;
  /** Takes typed input while a question is open. Undefined if the command does not read the terminal of the questions. */
  takeInput: ((chunk: Uint8Array) => boolean) | undefined;
}

/**
 * Opens questions on the terminal. If stdin is the terminal, the command and the questions share it: input belongs to the
 * question while one is open. `isRaw`: the command has a terminal, so the local one is in raw mode.
 */
export function openRunPrompt(isRaw: boolean): RunPrompt {
  if (!process.stdin.isTTY) return promptOnControllingTerminal();
  const input = new PassThrough();
  const onTerminal = askOnTerminal({ input, output: process.stderr });
  let open = 0;
  /** Line mode lets the user see and edit the answer. */
  const setRaw = (raw: boolean) => {
    if (isRaw && process.stdin.isTTY) process.stdin.setRawMode(raw);
  };
  return {
    policy: {
      review: (request) => onTerminal.review(request),
      async ask(request, signal) {
        open++;
        setRaw(false);
        try {
          return await onTerminal.ask(request, signal);
        } finally {
          open--;
          if (open === 0) setRaw(true);
        }
      },
    },
    takeInput: (chunk) => {
      if (open === 0) return false;
      input.write(chunk);
      return true;
    },
    [Symbol.dispose]: () => void input.destroy(),
  };
}

function promptOnControllingTerminal(): RunPrompt {
  const terminal = openControllingTerminal();
  if (!terminal) throw new UsageError("--network ask requires a terminal; give allow:DOMAIN");
  return {
    policy: askOnTerminal(terminal),
    takeInput: undefined,
    [Symbol.dispose]: () => terminal[Symbol.dispose](),
  };
}
