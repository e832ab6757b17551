import type { AttachedProcess } from "../../client/process/attached-process.ts";
import type { ExitStatus, TerminalSize } from "../../exec/exec-process.ts";
import { QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { gapMessage, showOutput } from "./process-output.ts";
import { enterRawMode, forwardResizes, localTerminalSize, onSignals } from "./raw-terminal.ts";

/** Signals that detach; the process keeps running. */
const DETACH_SIGNALS = ["SIGTERM", "SIGHUP", "SIGINT"] as const;
type DetachSignal = (typeof DETACH_SIGNALS)[number];

/** Resets the terminal: normal screen, visible cursor, no mouse reports, no bracketed paste, no colors. */
const RESET_MODES = "\x1b[?1047l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m";

export type AttachedEnd =
  | { type: "exited"; status: ExitStatus }
  /** The user pressed the detach key, or stdout was closed. */
  | { type: "detached" }
  | { type: "signaled"; signal: DetachSignal };

export interface AttachedTerminalOptions {
  tty: boolean;
  detachKey: number | null;
}

/**
 * Shows an attached process on the local terminal. As driver, it also sends keys and the terminal size. Runs until the process
 * ends or the user detaches, then restores the terminal.
 */
export async function runAttached(child: AttachedProcess, options: AttachedTerminalOptions): Promise<AttachedEnd> {
  const ending = Promise.withResolvers<AttachedEnd>();
  const stopSignals = onSignals(DETACH_SIGNALS, (signal) => ending.resolve({ type: "signaled", signal }));
  child.onRoleChanged = () => standardStream(2).write("\r\n[another client is the driver now; you are a viewer]\r\n");
  const stopSize = options.tty && child.role === "driver" ? forwardResizes(child) : () => undefined;
  const stopWatching = options.tty ? warnIfSmaller(child) : () => undefined;
  // Raw mode also for a viewer, so that the detach key works without Enter.
  const leaveRawMode = enterRawMode();
  // Input errors surface through the process or its failure.
  sendKeys(child, options.detachKey, () => ending.resolve({ type: "detached" })).catch(() => undefined);
  try {
    // The server replies to terminal queries. A reply of this terminal would be a second one, or late.
    const filter = options.tty ? new QueryStripper() : null;
    const onGap = (bytes: number | null) => standardStream(2).write(`\r\n[${gapMessage(bytes)}]\r\n`);
    const shown = showOutput(child, { filter, onGap }).then(
      (status): AttachedEnd => (status ? { type: "exited", status } : { type: "detached" }),
    );
    return await Promise.race([shown, ending.promise]);
  } finally {
    process.stdin.destroy();
    if (options.tty && process.stdout.isTTY) standardStream(1).write(RESET_MODES);
    leaveRawMode();
    stopSize();
    stopWatching();
    stopSignals();
  }
}

/** Warns once per size if the local terminal is smaller than that of the process. */
function warnIfSmaller(child: AttachedProcess): () => void {
  let warnedSize: TerminalSize | null = null;
  const check = () => {
    const [theirs, own] = [child.size, localTerminalSize()];
    if (!theirs || !own || child.role === "driver") return;
    const isSmaller = own.cols < theirs.cols || own.rows < theirs.rows;
    const hasWarned = warnedSize?.cols === theirs.cols && warnedSize.rows === theirs.rows;
    warnedSize = isSmaller ? theirs : null;
    if (isSmaller && !hasWarned)
      standardStream(2).write(
        `\r\n[the terminal of the process has ${theirs.cols}x${theirs.rows}, this one ${own.cols}x${own.rows}: output is cut off]\r\n`,
      );
  };
  child.onResized = check;
  process.stdout.on("resize", check);
  check();
  return () => process.stdout.off("resize", check);
}

/** Sends typed input up to the detach key; input of a viewer is ignored. The end of stdin does not detach. */
async function sendKeys(child: AttachedProcess, detachKey: number | null, onDetach: () => void): Promise<void> {
  for await (const chunk of process.stdin) {
    const bytes: Uint8Array = chunk;
    const at = detachKey === null ? -1 : bytes.indexOf(detachKey);
    if (at !== 0 && child.role === "driver") await child.write(at < 0 ? bytes : bytes.subarray(0, at));
    if (at >= 0) return onDetach();
  }
}
