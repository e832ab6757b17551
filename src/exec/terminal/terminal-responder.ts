import type { TerminalSize } from "../exec-process.ts";
import type { EventLog } from "../log/event-log.ts";
import { createHeadlessTerminal, type HeadlessTerminal } from "./headless-terminal.ts";
import { QueryScanner } from "./terminal-queries.ts";
import { attachReplies } from "./terminal-replies.ts";

/**
 * Maximum bytes waiting to be drawn. Above it, queries get no reply: a process that floods its terminal does not read
 * replies.
 */
const MAX_UNDRAWN_BYTES = 1024 * 1024;

export interface TerminalResponderDeps {
  log: EventLog;
  size: () => TerminalSize;
  /** Writes a reply to the input of the process. */
  reply: (bytes: Uint8Array) => void;
}

/**
 * Replies to the terminal queries of a process with an emulated terminal. The terminal is drawn from the event log
 * only when a query arrives; without queries the cost is one search for escape characters per chunk. Each query gets
 * one reply, also when its output is drawn again later.
 */
export class TerminalResponder {
  readonly #deps: TerminalResponderDeps;
  readonly #queryScanner = new QueryScanner();
  #terminal: Promise<HeadlessTerminal> | null = null;
  #drawing: Promise<void> = Promise.resolve();
  #undrawnBytes = 0;
  /** Sequence number up to which output is drawn or scheduled. */
  #drawnSeq = 0;
  /** Collects replies while a query is drawn; null otherwise. */
  #replies: string[] | null = null;
  #isDisposed = false;
  /** True after `finish`: later output is ignored. */
  #isFinished = false;

  constructor(deps: TerminalResponderDeps) {
    this.#deps = deps;
  }

  /** Call this with each chunk after it is in the log, while its bytes are still readable. */
  feed(chunk: Uint8Array): void {
    const query = this.#isFinished ? null : this.#queryScanner.scan(chunk);
    if (!query || this.#isDisposed) return;
    if (this.#undrawnBytes > MAX_UNDRAWN_BYTES) return;
    const { log } = this.#deps;
    const { chunks, gap } = log.read({ afterSeq: this.#drawnSeq });
    const bytes = Buffer.concat(chunks.map((entry) => entry.chunk));
    // The log may have split a large chunk, and may have evicted its first pieces.
    const queryAt = Math.max(0, bytes.length - chunk.length - query.bytesBefore);
    this.#drawnSeq = log.nextSeq - 1;
    this.#scheduleDraw(bytes.subarray(0, queryAt), bytes.subarray(queryAt), gap !== undefined);
  }

  /** Replies to queries after `afterSeq` through `throughSeq` that are already in the log. Call it before `feed`. */
  replay({ afterSeq, throughSeq = Number.POSITIVE_INFINITY }: { afterSeq: number; throughSeq?: number }): void {
    const { chunks, gap } = this.#deps.log.read({});
    const joinWhere = (isIncluded: (seq: number) => boolean) =>
      Buffer.concat(chunks.filter(({ seq }) => isIncluded(seq)).map(({ chunk }) => chunk));
    const past = joinWhere((seq) => seq <= afterSeq);
    const present = joinWhere((seq) => seq > afterSeq && seq <= throughSeq);
    // A query may have started in the output before `afterSeq`.
    this.#queryScanner.scan(past);
    const query = this.#queryScanner.scan(present);
    if (!query) return;
    this.#drawnSeq = Math.min(this.#deps.log.nextSeq - 1, throughSeq);
    this.#scheduleDraw(past, present, gap !== undefined);
  }

  #scheduleDraw(past: Uint8Array, present: Uint8Array, hasGap: boolean): void {
    const bytes = past.length + present.length;
    this.#undrawnBytes += bytes;
    const draw = async () => {
      await this.#draw(past, present, hasGap);
      this.#undrawnBytes -= bytes;
    };
    this.#drawing = this.#drawing.then(draw);
    // Without the emulator there are no replies.
    this.#drawing.catch(() => this.dispose());
  }

  /** Replies to pending queries, then stops. */
  finish(): void {
    this.#isFinished = true;
    this.#drawing = this.#drawing.then(() => this.dispose());
    this.#drawing.catch(() => undefined);
  }

  /** Stops immediately; pending queries get no reply. */
  dispose(): void {
    this.#isDisposed = true;
    void this.#terminal?.then(
      (terminal) => terminal.dispose(),
      () => undefined,
    );
  }

  async #draw(past: Uint8Array, present: Uint8Array, hasGap: boolean): Promise<void> {
    this.#terminal ??= this.#open();
    const terminal = await this.#terminal;
    if (this.#isDisposed) return;
    terminal.resize(this.#deps.size());
    // After a gap the previous screen content is invalid.
    if (hasGap) terminal.reset();
    await terminal.write(past);
    this.#replies = [];
    await terminal.write(present);
    const replies = this.#replies;
    this.#replies = null;
    if (replies.length > 0 && !this.#isDisposed) this.#deps.reply(Buffer.from(replies.join(""), "latin1"));
  }

  async #open(): Promise<HeadlessTerminal> {
    const terminal = await createHeadlessTerminal(this.#deps.size());
    const reply = (text: string) => void this.#replies?.push(text);
    terminal.onReply(reply);
    attachReplies(terminal, { size: this.#deps.size, reply });
    return terminal;
  }
}
