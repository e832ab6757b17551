import { invalidRequest } from "../protocol/errors.ts";

/** Counts things of one kind over all owners, and refuses one more than there may be. */
export class Capped {
  readonly #most: number;
  /** As an error says it: `waits`. */
  readonly #what: string;
  /** What the refused one can do instead. */
  readonly #advice: string;
  #count = 0;

  constructor(most: number, what: string, advice: string) {
    this.#most = most;
    this.#what = what;
    this.#advice = advice;
  }

  get count(): number {
    return this.#count;
  }

  /** The same things of one connection, of which there may be `most`. */
  ofConnection(most: number): { enter: () => () => void } {
    let count = 0;
    return {
      enter: () => {
        if (count + 1 > most) this.#refuse("this connection", most, 1);
        const leave = this.enter();
        count++;
        return once(() => {
          count--;
          leave();
        });
      },
    };
  }

  /** Returns how to leave; throws what the peer is told when there would be too many. */
  enter(count = 1): () => void {
    if (this.#count + count > this.#most) this.#refuse("this server", this.#most, count);
    this.#count += count;
    return once(() => {
      this.#count -= count;
    });
  }

  #refuse(owner: string, most: number, more: number): never {
    const asked = more > 1 ? `, and ${more} more were asked for` : "";
    throw invalidRequest(
      `too many ${this.#what}: ${owner} may have ${most} at once${asked}; ${this.#advice}`,
    );
  }
}

function once(act: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    act();
  };
}
