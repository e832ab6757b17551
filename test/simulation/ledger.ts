import type { ExecEvent, OutputChunk, ReadResult } from "../../src/exec/exec-process.ts";
import { DISCONNECTED_PREFIX } from "../../src/protocol/errors.ts";
import { firstMismatch } from "./pattern.ts";
import type { Program } from "./program.ts";
import type { HostRecord } from "./sim-host.ts";

export interface LedgerOptions {
  processId: string;
  program: Program;
  /** State of the process on the host; null before its start. */
  host: () => HostRecord | null;
  /** Without acknowledgements, a server retains a closed process for 30 s, even if the client missed the end. */
  hasAcks: boolean;
  /** Whether this reader must receive all output. */
  isLossless: boolean;
  /** Whether the client lost its connection for good or was closed. */
  mayFail: () => boolean;
  onFault: (text: string) => void;
}

/** Checks the output that one reader received of one process: produced = delivered + gaps. */
export class Ledger {
  readonly #options: LedgerOptions;
  readonly #offsets = { stdout: 0, stderr: 0, pty: 0 };
  #seq = 0;
  #deliveredBytes = 0;
  #missingBytes = 0;
  #hasExit = false;
  ended: "closed" | "failed" | null = null;

  constructor(options: LedgerOptions) {
    this.#options = options;
  }

  take(event: ExecEvent): void {
    if (this.ended) this.#fault(`was told ${event.type} after its end`);
    switch (event.type) {
      case "output":
        this.#inOrder(event.seq, event.seq);
        this.#output(event);
        return;
      case "gap":
        this.#inOrder(event.fromSeq, event.toSeq);
        this.#missing(event.bytes ?? 0);
        return;
      case "exited":
        this.#inOrder(event.seq, event.seq);
        this.#exited(event.exitCode, `${event.signal} ${event.reason}`);
        return;
      case "closed":
        this.#inOrder(event.seq, event.seq);
        this.#closed();
        return;
      case "failed":
        this.failed(event.message);
        return;
    }
  }

  /** Adds the result of one read. Returns true after the last read. */
  takeRead(result: ReadResult, afterSeq: number): boolean {
    if (result.gap) {
      if (result.gap.fromSeq !== afterSeq + 1) this.#fault(`a gap begins at ${result.gap.fromSeq}`);
      this.#missing(result.gap.bytes ?? 0);
    }
    for (const chunk of result.chunks) this.#output(chunk);
    if (result.failure !== null && result.chunks.length === 0) {
      this.failed(result.failure);
      return true;
    }
    if (!result.closed || result.chunks.length > 0) return false;
    this.#exited(result.exitCode ?? -1, null);
    this.#closed();
    return true;
  }

  failed(message: string): void {
    this.ended = "failed";
    const { processId, hasAcks, mayFail } = this.#options;
    const isLost = message.startsWith(DISCONNECTED_PREFIX) && mayFail();
    const isForgotten = !hasAcks && message.endsWith(`unknown process id ${processId}`);
    if (!isLost && !isForgotten) this.#fault(`failed: ${message}`);
  }

  #output({ stream, chunk, seq }: OutputChunk): void {
    const { program, host } = this.#options;
    // The share of each stream in a common gap is unknown.
    if (!(program.usesStderr && this.#missingBytes > 0)) {
      const wrongAt = firstMismatch(program.key, this.#offsets[stream], chunk);
      if (wrongAt >= 0) this.#fault(`${stream} is wrong at byte ${this.#offsets[stream] + wrongAt} (seq ${seq})`);
    }
    this.#offsets[stream] += chunk.length;
    this.#deliveredBytes += chunk.length;
    const produced = host()?.producedBytes ?? 0;
    if (this.#deliveredBytes + this.#missingBytes > produced)
      this.#fault(`was given more than the ${produced} bytes there are`);
  }

  #missing(bytes: number): void {
    if (this.#options.isLossless) this.#fault(`lost ${bytes} bytes that it must not lose`);
    this.#missingBytes += bytes;
    this.#offsets.stdout += bytes;
  }

  #exited(exitCode: number, more: string | null): void {
    this.#hasExit = true;
    const exit = this.#options.host()?.process.log.exit;
    if (!exit) {
      this.#fault("was told an exit that has not happened");
    } else if (exit.exitCode !== exitCode || (more !== null && more !== `${exit.signal} ${exit.reason}`)) {
      this.#fault(`exit ${exitCode} ${more} is not ${exit.exitCode} ${exit.signal} ${exit.reason}`);
    }
  }

  #closed(): void {
    this.ended = "closed";
    const produced = this.#options.host()?.producedBytes ?? 0;
    const accounted = this.#deliveredBytes + this.#missingBytes;
    if (!this.#hasExit) this.#fault("was closed without an exit");
    if (accounted !== produced)
      this.#fault(`${this.#deliveredBytes} delivered + ${this.#missingBytes} missing is not ${produced} produced`);
  }

  #inOrder(fromSeq: number, toSeq: number): void {
    if (fromSeq !== this.#seq + 1 || toSeq < fromSeq) this.#fault(`seq ${fromSeq} after ${this.#seq}`);
    this.#seq = toSeq;
  }

  #fault(text: string): void {
    if (this.#options.host()?.isSecond) return;
    this.#options.onFault(`${this.#options.processId}: ${text}`);
  }
}
