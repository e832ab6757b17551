/** How many ended trees are remembered before they are swept. */
const LOOK_THROUGH_FROM = 1024;

/**
 * Marks of the trees that this program has started and not ended: a leader, or a descendant it left, may still live. An
 * orphan with any other mark, or with none, has changed it.
 */
export class KnownTrees {
  /** Each mark with whether its leader has exited; null until orphans come to this program. */
  #trees: Map<number, { exited: boolean }> | null = null;
  /** A tree without a mark, or one started before marks were recorded, may have unmarked orphans that hide nothing. */
  #hasUnknown = false;
  #lookThroughAt = LOOK_THROUGH_FROM;

  /** Records marks from now on, for a program that orphans come to. */
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

  /** Whether no process of a living tree can have this mark. */
  isStrange(mark: number): boolean {
    return this.#trees !== null && !this.#hasUnknown && !this.#trees.has(mark);
  }

  /** Forgets ended trees whose mark no process carries: those that live as long as the server are not swept earlier. */
  forgetEnded(isCarried: (mark: number) => boolean): void {
    if (this.#trees === null || this.#trees.size < this.#lookThroughAt) return;
    for (const [mark, { exited }] of this.#trees) if (exited && !isCarried(mark)) this.#trees.delete(mark);
    this.#lookThroughAt = Math.max(LOOK_THROUGH_FROM, 2 * this.#trees.size);
  }
}

/** One for the whole program, since orphans come to the program: two backends must know each other's trees. */
export const knownTrees = new KnownTrees();
