import { fstatSync } from "node:fs";
import type { ExecProcess, ExitStatus } from "../../exec/exec-process.ts";
import { QueryGate, QueryStripper } from "../../exec/terminal/terminal-queries.ts";
import { EscapeKey } from "../options/escape-key.ts";
import { type ShowOptions, showOutput } from "./process-output.ts";
import { enterRawMode, forwardResizes, onSignals } from "./raw-terminal.ts";

/** Signals that are forwarded to a foreground process. */
const FORWARDED_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;
/** Signals that terminate the process if the server supports only SIGINT. */
const TERMINATING_SIGNALS: ReadonlySet<string> = new Set(["SIGTERM", "SIGHUP", "SIGQUIT"]);

export interface ForegroundOptions {
  tty: boolean;
  /** Reports whether the connection is lost. A signal then ends the wait, because the process cannot receive it. */
  isDisconnected?: () => boolean;
  /** Whether the server replies to terminal queries. */
  isAnswered?: boolean;
  /** Escape key, for a process with a terminal on a local terminal. */
  escapeKey?: number | null;
  /** Called with typed input that the terminal echoed; never called while echo is off. */
  onTyped?: ((chunk: Uint8Array) => void) | undefined;
  /** Takes input that answers a question of this program. Returns false for input of the process. */
  takeInput?: ((chunk: Uint8Array) => boolean) | undefined;
}

export type ForegroundEnd =
  | { type: "exited"; status: ExitStatus }
  /** The reader of the output closed the pipe, as `| head` does. */
  | { type: "unread" }
  /** The user typed the escape key and a dot. */
  | { type: "left" }
  /** This signal arrived while the server was unreachable. */
  | { type: "abandoned"; signal: NodeJS.Signals };

/** Connects stdio, signals and terminal of this program to a process until it closes, then restores the terminal. */
export async function runInForeground(child: ExecProcess, options: ForegroundOptions): Promise<ForegroundEnd> {
  const ending = Promise.withResolvers<ForegroundEnd>();
  const stopSignals = forwardSignals(child, options, (signal) => ending.resolve({ type: "abandoned", signal }));
  const stopSize = options.tty ? forwardResizes(child) : () => undefined;
  const leaveRawMode = options.tty ? enterRawMode() : () => undefined;
  const escapes =
    options.tty && process.stdin.isTTY && options.escapeKey != null ? new EscapeKey(options.escapeKey) : null;
  const stopInput = forwardStdin(child, options, escapes, () => ending.resolve({ type: "left" }));
  try {
    const shown = showOutput(child, { filter: queryFilter(child, options) }).then(
      (status): ForegroundEnd => (status ? { type: "exited", status } : { type: "unread" }),
    );
    return await Promise.race([shown, ending.promise]);
  } finally {
    stopInput();
    leaveRawMode();
    stopSize();
    stopSignals();
  }
}

/** Returns the filter that hides terminal queries which the local terminal must not answer. */
function queryFilter(child: ExecProcess, { tty, isAnswered }: ForegroundOptions): ShowOptions["filter"] {
  if (!tty || !process.stdout.isTTY) return null;
  if (isAnswered) return new QueryStripper();
  const claim = child.claimQueries;
  // A disconnected process cannot receive a reply.
  return claim ? new QueryGate((seq) => claim(seq).catch(() => false)) : null;
}

/** Forwards stdin and its end to the process. Returns a function that stops this. */
function forwardStdin(
  child: ExecProcess,
  { onTyped, takeInput }: ForegroundOptions,
  escapes: EscapeKey | null,
  leave: () => void,
): () => void {
  if (isNullDevice(0)) {
    child.closeStdin().catch(() => undefined);
    return () => undefined;
  }
  const { stdin } = process;
  let isClosed = false;
  /** Returns false if the process takes no more input. */
  const write = async (chunk: Uint8Array): Promise<boolean> =>
    takeInput?.(chunk) || (!isClosed && (await writeTyped(child, chunk, onTyped)).status === "accepted");
  /** Scans typed input for the escape key even while writes are blocked by a lost connection. */
  const forwardTyped = (escapeKey: EscapeKey) => {
    let lastWrite = Promise.resolve(true);
    stdin.on("data", (chunk: Buffer) => {
      const { pass, leaves } = escapeKey.take(chunk);
      if (pass.length > 0) lastWrite = lastWrite.then((isOpen) => isOpen && write(pass)).catch(() => false);
      if (leaves) leave();
    });
    stdin.on("end", () => {
      void lastWrite.then((isOpen) => (isOpen ? child.closeStdin() : undefined)).catch(() => undefined);
    });
  };
  const forward = async () => {
    // A question needs input also after the process closed its own.
    for await (const chunk of stdin) if (!(await write(chunk)) && !takeInput) return;
    if (!isClosed) await child.closeStdin();
  };
  // Input errors surface through the process or its failure.
  if (escapes) forwardTyped(escapes);
  else forward().catch(() => undefined);
  return () => {
    isClosed = true;
    stdin.destroy();
  };
}

/** Number of /dev/null on Linux. */
const NULL_DEVICE = 0x103;

/** Reports whether a descriptor is /dev/null, whose stream would be loaded only to report its end. */
function isNullDevice(fd: number): boolean {
  try {
    const stat = fstatSync(fd);
    return stat.isCharacterDevice() && stat.rdev === NULL_DEVICE;
  } catch {
    return false;
  }
}

/** Writes input. Checks echo before and after the write, so that a change in between counts as off. */
async function writeTyped(child: ExecProcess, chunk: Uint8Array, onTyped: ForegroundOptions["onTyped"]) {
  if (!onTyped) return child.write(chunk);
  /** Reports whether the terminal echoes input; false if unknown. */
  const echoes = () =>
    child.snapshot().then(
      ({ tty }) => tty?.echo ?? false,
      () => false,
    );
  const echoedBefore = await echoes();
  const written = await child.write(chunk);
  if (echoedBefore && (await echoes())) onTyped(chunk);
  return written;
}

function forwardSignals(
  child: ExecProcess,
  options: ForegroundOptions,
  abandon: (signal: NodeJS.Signals) => void,
): () => void {
  const forward = async (signal: NodeJS.Signals) => {
    if (options.isDisconnected?.()) return abandon(signal);
    try {
      await child.signal(signal);
    } catch {
      // The server supports only SIGINT, or the connection was lost just now.
      if (TERMINATING_SIGNALS.has(signal)) await child.terminate().catch(() => undefined);
    }
  };
  return onSignals(FORWARDED_SIGNALS, (signal) => void forward(signal));
}
