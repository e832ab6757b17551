import type { TerminalSize } from "../exec-process.ts";
import type { EventLog } from "../log/event-log.ts";
import { type HeadlessTerminal, newHeadlessTerminal } from "./headless-terminal.ts";
import { QueryWatch } from "./terminal-queries.ts";
import { answerQueries } from "./terminal-replies.ts";

/** More than this waiting to be drawn, and questions go unanswered: one who floods its terminal with them reads no answer. */
const MAX_UNDRAWN_BYTES = 1024 * 1024;

export interface TerminalAnswersDeps {
  log: EventLog;
  size: () => TerminalSize;
  /** Types an answer into the process. */
  reply: (bytes: Uint8Array) => void;
}

/**
 * Answers what a process asks its terminal, from a screen of its own. The screen is drawn from the log when a question
 * comes, and only then: a process that asks nothing costs no more than a look for escape characters. An answer is given to
 * a question when it comes, never to one that is drawn again.
 */
export class TerminalAnswers {
  readonly #deps: TerminalAnswersDeps;
  readonly #watch = new QueryWatch();
  #terminal: Promise<HeadlessTerminal> | null = null;
  #drawing: Promise<void> = Promise.resolve();
  #undrawnBytes = 0;
  /** Everything up to here is drawn, or about to be. */
  #drawnSeq = 0;
  /** While the question is drawn that is to be answered. */
  #answers: string[] | null = null;
  #isOver = false;
  /** Nothing more is looked at. */
  #isFinished = false;

  constructor(deps: TerminalAnswersDeps) {
    this.#deps = deps;
  }

  /** To be called with each piece of output once it is in the log, while its bytes can still be read. */
  look(chunk: Uint8Array): void {
    const query = this.#isFinished ? null : this.#watch.look(chunk);
    if (!query || this.#isOver) return;
    if (this.#undrawnBytes > MAX_UNDRAWN_BYTES) return;
    const { log } = this.#deps;
    const { chunks, gap } = log.read({ afterSeq: this.#drawnSeq });
    const bytes = Buffer.concat(chunks.map((one) => one.chunk));
    // A large piece may be several in the log, of which the first may be gone already.
    const asked = Math.max(0, bytes.length - chunk.length - query.bytesBefore);
    this.#drawnSeq = log.nextSeq - 1;
    this.#drawLater(bytes.subarray(0, asked), bytes.subarray(asked), gap !== undefined);
  }

  /** To be called first: what was asked before this object was there is answered too, after one seq and up to another. */
  lookBack({
    afterSeq,
    throughSeq = Number.POSITIVE_INFINITY,
  }: {
    afterSeq: number;
    throughSeq?: number;
  }): void {
    const { chunks, gap } = this.#deps.log.read({});
    const joined = (isWanted: (seq: number) => boolean) =>
      Buffer.concat(chunks.filter(({ seq }) => isWanted(seq)).map(({ chunk }) => chunk));
    const past = joined((seq) => seq <= afterSeq);
    const present = joined((seq) => seq > afterSeq && seq <= throughSeq);
    // A question may have begun in what is past.
    this.#watch.look(past);
    const query = this.#watch.look(present);
    if (!query) return;
    this.#drawnSeq = Math.min(this.#deps.log.nextSeq - 1, throughSeq);
    this.#drawLater(past, present, gap !== undefined);
  }

  #drawLater(past: Uint8Array, present: Uint8Array, isTorn: boolean): void {
    const bytes = past.length + present.length;
    this.#undrawnBytes += bytes;
    const draw = async () => {
      await this.#draw(past, present, isTorn);
      this.#undrawnBytes -= bytes;
    };
    this.#drawing = this.#drawing.then(draw);
    // Without the emulator nobody answers, as without this object.
    this.#drawing.catch(() => this.dispose());
  }

  /** What was asked is answered still, and nothing after it. */
  finish(): void {
    this.#isFinished = true;
    this.#drawing = this.#drawing.then(() => this.dispose());
    this.#drawing.catch(() => undefined);
  }

  /** Answers nothing any more. */
  dispose(): void {
    this.#isOver = true;
    void this.#terminal?.then(
      (terminal) => terminal.dispose(),
      () => undefined,
    );
  }

  async #draw(past: Uint8Array, present: Uint8Array, isTorn: boolean): Promise<void> {
    this.#terminal ??= this.#open();
    const terminal = await this.#terminal;
    if (this.#isOver) return;
    terminal.resize(this.#deps.size());
    // What stood there before the hole says nothing about what stands there now.
    if (isTorn) terminal.reset();
    if (past.length > 0) await terminal.write(past);
    this.#answers = [];
    await terminal.write(present);
    const answers = this.#answers;
    this.#answers = null;
    if (answers.length > 0 && !this.#isOver) this.#deps.reply(Buffer.from(answers.join(""), "latin1"));
  }

  async #open(): Promise<HeadlessTerminal> {
    const terminal = await newHeadlessTerminal(this.#deps.size());
    const answer = (text: string) => void this.#answers?.push(text);
    terminal.onAnswer(answer);
    answerQueries(terminal, { size: this.#deps.size, answer });
    return terminal;
  }
}
