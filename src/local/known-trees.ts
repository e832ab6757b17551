/** So many ended trees may be remembered before they are looked through. */
const LOOK_THROUGH_FROM = 1024;

/**
 * Marks of the trees that this program has started and not ended: a leader, or somebody it left, may still live. An orphan
 * with any other mark, or with none, has changed it.
 */
export class KnownTrees {
  /** Each with whether its leader has exited; null while nobody asks. */
  #trees: Map<number, { exited: boolean }> | null = null;
  /** A tree without a mark, or from before this was kept, may have orphans that are not known and have done nothing. */
  #hasUnknown = false;
  #lookThroughAt = LOOK_THROUGH_FROM;

  /** From now on, for a program that orphans come to. */
  keep(): void {
    this.#trees ??= new Map();
  }

  /** A tree begins with this mark; 0: it has none. */
  begins(mark: number): void {
    if (mark === 0 || this.#trees === null) this.#hasUnknown = true;
    else this.#trees.set(mark, { exited: false });
  }

  leaderExited(mark: number): void {
    const tree = this.#trees?.get(mark);
    if (tree) tree.exited = true;
  }

  /** Nothing is left of it. */
  forget(mark: number): void {
    this.#trees?.delete(mark);
  }

  /** Nobody who was left alone can have this mark. */
  isStrange(mark: number): boolean {
    return this.#trees !== null && !this.#hasUnknown && !this.#trees.has(mark);
  }

  /** Not all are forgotten one by one: whoever lives as long as the server is never swept before. */
  forgetEnded(isCarried: (mark: number) => boolean): void {
    if (this.#trees === null || this.#trees.size < this.#lookThroughAt) return;
    for (const [mark, { exited }] of this.#trees) if (exited && !isCarried(mark)) this.#trees.delete(mark);
    this.#lookThroughAt = Math.max(LOOK_THROUGH_FROM, 2 * this.#trees.size);
  }
}

/** Of the whole program, as its orphans are: two backends in it must not take each other's for strangers. */
export const knownTrees = new KnownTrees();
