import type { Readable } from "node:stream";
import type { AttachedProcess } from "../../client/process/attached-process.ts";
import type { ExitStatus, TerminalSize } from "../../exec/exec-process.ts";
import { QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { gapMessage, showOutput } from "./process-output.ts";
import { forwardResizes, localTerminalSize, onSignals, RawTerminal } from "./raw-terminal.ts";

/** Signals that detach; the process keeps running. */
const LEAVING = ["SIGTERM", "SIGHUP", "SIGINT"] as const;
type DetachReason = (typeof LEAVING)[number];

/** Back to the normal screen, a visible cursor, no mouse reports, no bracketed paste, no colours. */
const RESET_MODES =
  "\x1b[?1047l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m";

export type AttachedEnd =
  | { type: "exited"; status: ExitStatus }
  /** The user pressed the detach key, or stdout was closed. */
  | { type: "detached" }
  | { type: "asked"; signal: DetachReason };

export interface AttachedTerminalOptions {
  tty: boolean;
  detachKey: number | null;
}

/**
 * Shows an attached process on the local terminal. As driver, it also sends keys and the terminal size. Runs until the process
 * ends or the user detaches, then restores the terminal.
 */
export async function runAttached(
  child: AttachedProcess,
  options: AttachedTerminalOptions,
): Promise<AttachedEnd> {
  const terminal = new RawTerminal();
  const ending = Promise.withResolvers<AttachedEnd>();
  const stopSignals = onSignals(LEAVING, (signal) => ending.resolve({ type: "asked", signal }));
  child.onRoleChanged = () =>
    standardStream(2).write("\r\n[another client drives this process now; you are watching]\r\n");
  const isDriver = () => child.role === "driver";
  const stopSize = options.tty && isDriver() ? forwardResizes(child) : () => undefined;
  const stopWatching = options.tty ? warnIfSmaller(child) : () => undefined;
  // A viewer's keys go nowhere, but the one to leave by must come at once.
  if (process.stdin.isTTY) terminal.enter();
  const keys = new KeyInput(process.stdin, {
    detachKey: options.detachKey,
    pressed: async (bytes) => {
      if (isDriver()) await child.write(bytes);
    },
    detach: () => ending.resolve({ type: "detached" }),
  });
  try {
    // The server answers what the program asks its terminal: an answer of this one would be a second, or come late.
    const filter = options.tty ? new QueryStripper() : null;
    const onGap = (bytes: number | null) => standardStream(2).write(`\r\n[${gapMessage(bytes)}]\r\n`);
    const shown = showOutput(child, { filter, onGap }).then(
      (status): AttachedEnd => (status ? { type: "exited", status } : { type: "detached" }),
    );
    return await Promise.race([shown, ending.promise]);
  } finally {
    keys.stop();
    if (options.tty && process.stdout.isTTY) standardStream(1).write(RESET_MODES);
    terminal.leave();
    stopSize();
    stopWatching();
    stopSignals();
  }
}

/** Warns once per size if the local terminal is smaller than that of the process. */
function warnIfSmaller(child: AttachedProcess): () => void {
  /** The size that was last said not to fit. */
  let toldSize: TerminalSize | null = null;
  const look = () => {
    const [theirs, own] = [child.size, localTerminalSize()];
    if (!theirs || !own || child.role === "driver") return;
    const isSmaller = own.cols < theirs.cols || own.rows < theirs.rows;
    const isTold = toldSize?.cols === theirs.cols && toldSize.rows === theirs.rows;
    toldSize = isSmaller ? theirs : null;
    if (isSmaller && !isTold)
      standardStream(2).write(
        `\r\n[its terminal has ${theirs.cols}x${theirs.rows}, this one ${own.cols}x${own.rows}: not all of it fits here]\r\n`,
      );
  };
  child.onResized = look;
  process.stdout.on("resize", look);
  look();
  return () => process.stdout.off("resize", look);
}

interface KeysOptions {
  detachKey: number | null;
  pressed: (bytes: Uint8Array) => Promise<void>;
  detach: () => void;
}

/** Typed input up to the detach key. */
class KeyInput {
  readonly #input: Readable;

  constructor(input: Readable, options: KeysOptions) {
    this.#input = input;
    // Input errors surface through the process or its failure. The end of stdin does not detach.
    this.#carry(options).catch(() => undefined);
  }

  stop(): void {
    this.#input.destroy();
  }

  async #carry({ detachKey, pressed, detach }: KeysOptions): Promise<void> {
    for await (const chunk of this.#input) {
      const bytes: Uint8Array = chunk;
      const at = detachKey === null ? -1 : bytes.indexOf(detachKey);
      if (at !== 0) await pressed(at < 0 ? bytes : bytes.subarray(0, at));
      if (at >= 0) return detach();
    }
  }
}
