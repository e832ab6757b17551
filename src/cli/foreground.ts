import type { Readable, Writable } from "node:stream";
import type { ExecProcess, ExitStatus, TerminalSize } from "../exec/exec-process.ts";
import { failureError } from "../exec/failure.ts";

/** What a person or a script may send to a command that runs in front of them. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;
/** What ends a command on a server that knows no other signal than the interrupt. */
const ENDING: ReadonlySet<string> = new Set(["SIGTERM", "SIGHUP", "SIGQUIT"]);

export interface ForegroundOptions {
  tty: boolean;
  /** Called before a signal is passed on: true when no process can take it, so that it ends the wait instead. */
  isUnreachable?: () => boolean;
  /** Called with what was typed and what the terminal of the command has shown of it: never while its echo is off. */
  onTyped?: ((chunk: Uint8Array) => void) | undefined;
}

export type ForegroundEnd =
  | { type: "exited"; status: ExitStatus }
  /** The reader of its output has closed the pipe, as `| head` does. */
  | { type: "unread" }
  /** Ended by this signal while its server could not be reached. */
  | { type: "abandoned"; signal: NodeJS.Signals };

/**
 * Lets a process have this program's stdin, stdout, stderr, signals and terminal until it is closed. The terminal is
 * put back however this ends.
 */
export async function runInForeground(
  child: ExecProcess,
  options: ForegroundOptions,
): Promise<ForegroundEnd> {
  const terminal = new RawTerminal();
  const ending = Promise.withResolvers<ForegroundEnd>();
  const stopSignals = forwardSignals(child, options, (signal) =>
    ending.resolve({ type: "abandoned", signal }),
  );
  const stopSize = options.tty ? followSize(child) : () => undefined;
  if (options.tty) terminal.enter();
  const input = new InputFeed(process.stdin, child, options.onTyped);
  try {
    return await Promise.race([showOutput(child), ending.promise]);
  } finally {
    input.stop();
    terminal.leave();
    stopSize();
    stopSignals();
  }
}

/** The size of the terminal in front of this program, where there is one. */
export function terminalSize(): TerminalSize | null {
  const { rows, columns } = process.stdout;
  return process.stdout.isTTY && rows > 0 && columns > 0 ? { rows, cols: columns } : null;
}

/** Byte for byte, and no faster than it is taken. */
async function showOutput(child: ExecProcess): Promise<ForegroundEnd> {
  const stdout = new OutputPipe(process.stdout);
  const stderr = new OutputPipe(process.stderr);
  let status: ExitStatus | null = null;
  for await (const event of child.events({ lossless: true })) {
    switch (event.type) {
      case "output": {
        const pipe = event.stream === "stderr" ? stderr : stdout;
        if (!(await pipe.write(event.chunk))) return { type: "unread" };
        break;
      }
      case "exited":
        status = event;
        break;
      case "failed":
        throw failureError(event.message);
      case "gap":
      case "closed":
        break;
    }
  }
  await Promise.all([stdout.flush(), stderr.flush()]);
  if (!status) throw new Error("the process ended without an exit status");
  return { type: "exited", status };
}

/** A stream of this program that shows output, no faster than it is taken. */
export class OutputPipe {
  readonly #stream: Writable;
  #isBroken = false;
  #waiting: (() => void) | null = null;

  constructor(stream: Writable) {
    this.#stream = stream;
    stream.on("error", () => {
      this.#isBroken = true;
      this.#waiting?.();
    });
    stream.on("drain", () => this.#waiting?.());
  }

  /** False when the reader has closed the pipe. */
  async write(chunk: Uint8Array): Promise<boolean> {
    if (this.#isBroken) return false;
    if (!this.#stream.write(chunk))
      await new Promise<void>((resolve) => {
        this.#waiting = resolve;
      });
    return !this.#isBroken;
  }

  flush(): Promise<void> {
    if (this.#isBroken) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting = resolve;
      this.#stream.write("", () => resolve());
    });
  }
}

/** Carries stdin over, and its end. */
class InputFeed {
  readonly #input: Readable;
  readonly #child: ExecProcess;
  readonly #onTyped: ForegroundOptions["onTyped"];
  #isOver = false;

  constructor(input: Readable, child: ExecProcess, onTyped: ForegroundOptions["onTyped"]) {
    this.#input = input;
    this.#child = child;
    this.#onTyped = onTyped;
    // What goes wrong with the input shows in the process itself, or in its loss.
    this.#carry().catch(() => undefined);
  }

  stop(): void {
    this.#isOver = true;
    this.#input.destroy();
  }

  async #carry(): Promise<void> {
    for await (const chunk of this.#input) {
      if (this.#isOver) return;
      const { status } = await this.#write(chunk);
      if (status !== "accepted") return;
    }
    if (!this.#isOver) await this.#child.closeStdin();
  }

  /** Whoever changes the echo meanwhile has it off at one of the two looks. */
  async #write(chunk: Uint8Array): ReturnType<ExecProcess["write"]> {
    if (!this.#onTyped) return this.#child.write(chunk);
    const isShown = await this.#echoes();
    const written = await this.#child.write(chunk);
    if (isShown && (await this.#echoes())) this.#onTyped(chunk);
    return written;
  }

  /** What cannot be learned counts as off. */
  async #echoes(): Promise<boolean> {
    return this.#child.snapshot().then(
      ({ tty }) => tty?.echo ?? false,
      () => false,
    );
  }
}

/** This program's own terminal, with every key passed on instead of being acted on here. */
export class RawTerminal {
  #isRaw = false;
  readonly #leave = () => this.leave();

  enter(): void {
    if (!process.stdin.isTTY) return;
    process.stdin.setRawMode(true);
    this.#isRaw = true;
    // Also when something unforeseen ends the program.
    process.once("exit", this.#leave);
  }

  leave(): void {
    if (!this.#isRaw) return;
    this.#isRaw = false;
    process.off("exit", this.#leave);
    process.stdin.setRawMode(false);
  }
}

export function followSize(child: ExecProcess): () => void {
  const onResize = () => {
    const size = terminalSize();
    // A server that cannot resize, or a process that has just ended: the command goes on without it.
    if (size) child.resize(size).catch(() => undefined);
  };
  process.stdout.on("resize", onResize);
  return () => process.stdout.off("resize", onResize);
}

function forwardSignals(
  child: ExecProcess,
  options: ForegroundOptions,
  abandon: (signal: NodeJS.Signals) => void,
): () => void {
  const forward = async (signal: NodeJS.Signals) => {
    if (options.isUnreachable?.()) return abandon(signal);
    try {
      await child.signal(signal);
    } catch {
      // A server that only knows the interrupt, or a connection that was lost just now.
      if (ENDING.has(signal)) await child.terminate().catch(() => undefined);
    }
  };
  const listeners = FORWARDED.map((signal) => [signal, () => void forward(signal)] as const);
  for (const [signal, listener] of listeners) process.on(signal, listener);
  return () => {
    for (const [signal, listener] of listeners) process.off(signal, listener);
  };
}
