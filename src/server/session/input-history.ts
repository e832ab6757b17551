import type { InputEntry } from "../../exec/exec-process.ts";

/** The session and client that wrote input. */
export type InputActor = Pick<InputEntry, "role" | "session" | "principal" | "client">;

/** One write to a process. */
export interface InputWrite {
  atMs: number;
  bytes: number;
  /** Whether the terminal echoed the input. True without a terminal. */
  echo: boolean;
  /** Input bytes, or null if they must not be recorded. */
  chunk: Uint8Array | null;
}

/** Writes of one actor within this time form one entry. */
const MERGE_INTERVAL_MS = 1000;
/** Maximum entries; the oldest are removed. The console shows fewer. */
const MAX_ENTRIES = 1000;
/** Maximum bytes of recorded input. */
const MAX_RECORDED_BYTES = 256 * 1024;

/** Input history of a process. Contains the bytes only with input recording, and never unechoed ones. */
export class InputHistory {
  readonly #entries: InputEntry[] = [];
  #omitted = 0;
  #recordedBytes = 0;

  add(actor: InputActor, { atMs, bytes, echo, chunk }: InputWrite): void {
    const last = this.#entries.at(-1);
    const isSame = last?.session === actor.session && last.role === actor.role && last.client === actor.client;
    if (last && isSame && last.echo === echo && !chunk && !last.chunk && atMs - last.fromMs < MERGE_INTERVAL_MS) {
      last.toMs = atMs;
      last.bytes += bytes;
      last.writes++;
      return;
    }
    this.#entries.push({
      fromMs: atMs,
      toMs: atMs,
      ...actor,
      bytes,
      writes: 1,
      echo,
      chunk: chunk ?? undefined,
    });
    this.#recordedBytes += chunk?.length ?? 0;
    while (this.#entries.length > MAX_ENTRIES || this.#recordedBytes > MAX_RECORDED_BYTES) {
      this.#recordedBytes -= this.#entries.shift()?.chunk?.length ?? 0;
      this.#omitted++;
    }
  }

  entries(): { inputs: InputEntry[]; omitted: number } {
    return { inputs: this.#entries.map((entry) => ({ ...entry })), omitted: this.#omitted };
  }
}
