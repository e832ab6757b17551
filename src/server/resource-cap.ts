import { once } from "../base/once.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { type PrincipalQuotas, QUOTA_TEXTS, type QuotaName } from "./principal-quotas.ts";

/** A limit on the number of resources of one kind, over all owners and per principal. */
export class ResourceCap {
  readonly #name: QuotaName;
  readonly #max: number;
  readonly #quotas: PrincipalQuotas;
  #count = 0;

  constructor(name: QuotaName, max: number, quotas: PrincipalQuotas) {
    this.#name = name;
    this.#max = max;
    this.#quotas = quotas;
  }

  /** Returns a cap of `max` for one connection of a principal, within this cap. */
  perConnection(max: number, ownerId: string): { enter: () => () => void } {
    let count = 0;
    return {
      enter: () => {
        if (count + 1 > max) this.#refuse("this connection", max, 1);
        const leave = this.acquire(ownerId);
        count++;
        return once(() => {
          count--;
          leave();
        });
      },
    };
  }

  /** Acquires `count` resources and returns the function that releases them. Throws a RequestError at the limit. */
  acquire(ownerId: string, count = 1): () => void {
    if (this.#count + count > this.#max) this.#refuse("this server", this.#max, count);
    const leave = this.#quotas.acquire(ownerId, this.#name, count);
    this.#count += count;
    return once(() => {
      this.#count -= count;
      leave();
    });
  }

  #refuse(owner: string, max: number, count: number): never {
    const [noun, hint] = QUOTA_TEXTS[this.#name];
    const requested = count > 1 ? ` (${count} more requested)` : "";
    throw invalidRequest(`too many ${noun}: ${owner} may have ${max} at once${requested}; ${hint}`);
  }
}
