import type { HostProcess } from "../../exec/backend/host-backend.ts";

/** Events after `afterSeq`, up to and including `throughSeq`. */
interface SeqRange {
  afterSeq: number;
  throughSeq: number;
}

/**
 * Decides whether the client or the server replies to the terminal queries of a process started with
 * `terminalQueries: "claimed"`. The owner's client replies to the queries it claims while it is connected; otherwise the
 * terminal responder of the server replies. A query belongs to the output event in which it ends and has exactly one reply.
 */
export class TerminalQueryClaims {
  readonly #process: HostProcess;
  /** Last claim granted to the current client. */
  #claimedSeq = 0;
  /** Queries up to this seq have a reply or are claimed. */
  #handledSeq: number;
  /** Ranges claimed since the client's last write. Its replies may not have arrived yet. */
  #unrepliedRanges: SeqRange[] = [];
  #isClientDisconnected = false;

  constructor(process: HostProcess) {
    this.#process = process;
    // The previous server has replied to the queries of a restored process.
    this.#handledSeq = process.log.nextSeq - 1;
  }

  /** Reports whether the client must reply to the queries of this event. Idempotent: the response to a claim may be lost. */
  claim(seq: number): boolean {
    if (seq <= this.#handledSeq) return seq === this.#claimedSeq;
    this.#unrepliedRanges.push({ afterSeq: this.#handledSeq, throughSeq: seq });
    this.#handledSeq = seq;
    this.#claimedSeq = seq;
    return true;
  }

  /** Clears the claimed ranges, because the client has written input. */
  inputWritten(): void {
    this.#unrepliedRanges = [];
  }

  /** Lets the server reply to all unclaimed and all future queries. */
  clientDisconnected(): void {
    if (this.#isClientDisconnected) return;
    this.#isClientDisconnected = true;
    this.#process.setTerminalResponder(true, { afterSeq: this.#handledSeq });
  }

  /** Returns the queries to the client. The same client still sends its pending replies; another client does not. */
  clientConnected(client: "same" | "another"): void {
    if (client === "another") this.#replaced();
    if (!this.#isClientDisconnected) return;
    this.#isClientDisconnected = false;
    this.#process.setTerminalResponder(false);
    this.#handledSeq = this.#lastSeq;
  }

  #replaced(): void {
    const ranges = this.#unrepliedRanges;
    this.#unrepliedRanges = [];
    this.#claimedSeq = 0;
    if (!this.#isClientDisconnected) ranges.push({ afterSeq: this.#handledSeq, throughSeq: this.#lastSeq });
    for (const range of ranges) this.#process.answerQueriesIn(range);
    this.#handledSeq = this.#lastSeq;
  }

  get #lastSeq(): number {
    return this.#process.log.nextSeq - 1;
  }
}
