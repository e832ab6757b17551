import type { Readable, Writable } from "node:stream";
import type { ExecProcess, ExitStatus, TerminalSize } from "../exec/exec-process.ts";
import { failureError } from "../exec/failure.ts";
import { standardStream } from "../server/standard-stream.ts";
import { unwritable } from "./broken-output.ts";
import { EscapeKey } from "./escape-key.ts";

/** What a person or a script may send to a command that runs in front of them. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;
/** What ends a command on a server that knows no other signal than the interrupt. */
const ENDING: ReadonlySet<string> = new Set(["SIGTERM", "SIGHUP", "SIGQUIT"]);

export interface ForegroundOptions {
  tty: boolean;
  /** Called before a signal is passed on: true when no process can take it, so that it ends the wait instead. */
  isUnreachable?: () => boolean;
  /** With a terminal on both sides: begins an escape at the beginning of a line. */
  escapeKey?: number | null;
  /** Called with what was typed and what the terminal of the command has shown of it: never while its echo is off. */
  onTyped?: ((chunk: Uint8Array) => void) | undefined;
}

export type ForegroundEnd =
  | { type: "exited"; status: ExitStatus }
  /** The reader of its output has closed the pipe, as `| head` does. */
  | { type: "unread" }
  /** The escape key and a dot were typed. */
  | { type: "left" }
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
  const escapes =
    options.tty && process.stdin.isTTY && options.escapeKey != null ? new EscapeKey(options.escapeKey) : null;
  const input = new InputFeed(process.stdin, child, options.onTyped, escapes, () =>
    ending.resolve({ type: "left" }),
  );
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
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (!this.#isBroken && error.code !== "EPIPE" && stream !== process.stderr)
        standardStream(2).write(`procwire: ${unwritable("stdout", error)}\n`);
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
  readonly #leave: () => void;
  #isOver = false;

  constructor(
    input: Readable,
    child: ExecProcess,
    onTyped: ForegroundOptions["onTyped"],
    escapes: EscapeKey | null,
    leave: () => void,
  ) {
    this.#input = input;
    this.#child = child;
    this.#onTyped = onTyped;
    this.#leave = leave;
    // What goes wrong with the input shows in the process itself, or in its loss.
    if (escapes) this.#carryTyped(escapes);
    else this.#carry().catch(() => undefined);
  }

  stop(): void {
    this.#isOver = true;
    this.#input.destroy();
  }

  /** What is typed is looked at as it comes: while the connection is lost writes wait, and who wants to leave must not. */
  #carryTyped(escapes: EscapeKey): void {
    let isTaken = Promise.resolve(true);
    const write = async (bytes: Uint8Array) =>
      !this.#isOver && (await this.#write(bytes)).status === "accepted";
    this.#input.on("data", (chunk: Buffer) => {
      const { pass, leaves } = escapes.take(chunk);
      if (pass.length > 0) isTaken = isTaken.then((isOpen) => isOpen && write(pass)).catch(() => false);
      if (leaves) this.#leave();
    });
    this.#input.on("end", () => {
      void isTaken.then((isOpen) => (isOpen ? this.#child.closeStdin() : undefined)).catch(() => undefined);
    });
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
