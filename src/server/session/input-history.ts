import type { inputEntry } from "../../protocol/attach-schemas.ts";
import type { Infer } from "../../protocol/schema.ts";

export type InputEntry = Infer<typeof inputEntry>;
/** Who typed: a session and the client that has it. */
export type InputActor = Pick<InputEntry, "role" | "session" | "principal" | "client">;

/** One write to a process. */
export interface TypedInput {
  atMs: number;
  bytes: number;
  /** Whether the terminal showed what was typed; true without a terminal. */
  echo: boolean;
  /** Null: it is not to be kept. */
  chunk: Uint8Array | null;
}

/** Of one actor, within this time, keys are one entry. */
const ONE_ENTRY_MS = 1000;
/** The oldest go first; a page shows fewer. */
const MAX_ENTRIES = 1000;
/** Of what was typed, where that is kept at all. */
const MAX_KEPT_BYTES = 256 * 1024;

/** Who typed how much into a process, and when. What was typed is kept only where its owner wishes, and never unechoed. */
export class InputTimeline {
  readonly #entries: InputEntry[] = [];
  #omitted = 0;
  #keptBytes = 0;

  add(actor: InputActor, { atMs, bytes, echo, chunk }: TypedInput): void {
    const last = this.#entries.at(-1);
    const isSame =
      last?.session === actor.session && last.role === actor.role && last.client === actor.client;
    if (last && isSame && last.echo === echo && !chunk && !last.chunk && atMs - last.fromMs < ONE_ENTRY_MS) {
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
    this.#keptBytes += chunk?.length ?? 0;
    while (this.#entries.length > MAX_ENTRIES || this.#keptBytes > MAX_KEPT_BYTES) {
      this.#keptBytes -= this.#entries.shift()?.chunk?.length ?? 0;
      this.#omitted++;
    }
  }

  told(): { inputs: InputEntry[]; omitted: number } {
    return { inputs: this.#entries.map((entry) => ({ ...entry })), omitted: this.#omitted };
  }
}
