import { once } from "../base/once.ts";
import { invalidRequest } from "../protocol/errors.ts";

/** A limit on the number of resources of one kind, over all owners. */
export class ResourceCap {
  readonly #max: number;
  /** Plural noun for error messages: `waits`. */
  readonly #noun: string;
  /** Remedy for the error message. */
  readonly #hint: string;
  #count = 0;

  constructor(max: number, noun: string, hint: string) {
    this.#max = max;
    this.#noun = noun;
    this.#hint = hint;
  }

  /** Returns a cap of `max` for one connection, within this cap. */
  perConnection(max: number): { enter: () => () => void } {
    let count = 0;
    return {
      enter: () => {
        if (count + 1 > max) this.#refuse("this connection", max, 1);
        const leave = this.acquire();
        count++;
        return once(() => {
          count--;
          leave();
        });
      },
    };
  }

  /** Acquires `count` resources and returns the function that releases them. Throws a RequestError at the limit. */
  acquire(count = 1): () => void {
    if (this.#count + count > this.#max) this.#refuse("this server", this.#max, count);
    this.#count += count;
    return once(() => {
      this.#count -= count;
    });
  }

  #refuse(owner: string, max: number, count: number): never {
    const requested = count > 1 ? ` (${count} more requested)` : "";
    throw invalidRequest(`too many ${this.#noun}: ${owner} may have ${max} at once${requested}; ${this.#hint}`);
  }
}
