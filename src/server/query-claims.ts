import type { HostProcess } from "../exec/host-backend.ts";

/** Events after one seq, up to another. */
interface Range {
  afterSeq: number;
  throughSeq: number;
}

/**
 * Who answers what a process asks its terminal, where its owner's client answers what it claims: that one while it is
 * there, else the server's own screen. A question belongs to the output in which it ends, and to exactly one of them.
 */
export class QueryClaims {
  readonly #process: HostProcess;
  /** The last claim that was granted to the present client. */
  #claimedSeq = 0;
  /** Questions up to here are answered, or somebody has claimed them. */
  #dealtWithSeq: number;
  /** What was claimed since the client last wrote: its answers may still be on their way. */
  #unanswered: Range[] = [];
  #isAway = false;

  constructor(process: HostProcess) {
    this.#process = process;
    // One of an earlier server was answered there.
    this.#dealtWithSeq = process.log.nextSeq - 1;
  }

  /** Whether the questions of this output are the client's. Asked again, because the answer was lost, it is the same. */
  claim(seq: number): boolean {
    if (seq <= this.#dealtWithSeq) return seq === this.#claimedSeq;
    this.#unanswered.push({ afterSeq: this.#dealtWithSeq, throughSeq: seq });
    this.#dealtWithSeq = seq;
    this.#claimedSeq = seq;
    return true;
  }

  /** Its client has written something: what it has claimed is answered. */
  written(): void {
    this.#unanswered = [];
  }

  /** The connection is gone: what was not claimed is answered here, and what is asked from now on. */
  left(): void {
    if (this.#isAway) return;
    this.#isAway = true;
    this.#process.answerQueries(true, { afterSeq: this.#dealtWithSeq });
  }

  /** A connection is there again. The same client sends what it had to say; of another one nothing more comes. */
  came(client: "same" | "another"): void {
    if (client === "another") this.#replaced();
    if (!this.#isAway) return;
    this.#isAway = false;
    this.#process.answerQueries(false);
    this.#dealtWithSeq = this.#lastSeq;
  }

  #replaced(): void {
    const ranges = this.#unanswered;
    this.#unanswered = [];
    this.#claimedSeq = 0;
    if (!this.#isAway) ranges.push({ afterSeq: this.#dealtWithSeq, throughSeq: this.#lastSeq });
    for (const range of ranges) this.#process.answerAsked(range);
    this.#dealtWithSeq = this.#lastSeq;
  }

  get #lastSeq(): number {
    return this.#process.log.nextSeq - 1;
  }
}
