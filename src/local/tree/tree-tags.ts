/** Number of recorded trees at which exited trees are pruned. */
const PRUNE_MIN_TREES = 1024;

/**
 * Tags of the process trees that this server started and that may still have live processes. An orphan with any
 * other tag, or without a tag, has changed it.
 */
export class TreeTagRegistry {
  /** Maps each tag to whether its leader has exited; null until this server is a subreaper. */
  #trees: Map<number, { exited: boolean }> | null = null;
  /** True after an untagged tree started, or a tree before `enable`: its orphans are untagged without tampering. */
  #hasUnknown = false;
  #pruneAt = PRUNE_MIN_TREES;

  /** Starts recording tags. Called when this server becomes a subreaper. */
  enable(): void {
    this.#trees ??= new Map();
  }

  /** Records the start of a tree; null means that it is untagged. */
  add(tag: number | null): void {
    if (tag === null || this.#trees === null) this.#hasUnknown = true;
    else this.#trees.set(tag, { exited: false });
  }

  leaderExited(tag: number | null): void {
    const tree = tag === null ? undefined : this.#trees?.get(tag);
    if (tree) tree.exited = true;
  }

  /** Called when no process of the tree is left. */
  forget(tag: number | null): void {
    if (tag !== null) this.#trees?.delete(tag);
  }

  /** Returns true if no process of a live tree can have this tag. */
  isUnknown(tag: number | null): boolean {
    return this.#trees !== null && !this.#hasUnknown && (tag === null || !this.#trees.has(tag));
  }

  /** Removes exited trees whose tag no process has. Trees that are never swept are removed only here. */
  pruneExited(isCarried: (tag: number) => boolean): void {
    if (this.#trees === null || this.#trees.size < this.#pruneAt) return;
    for (const [tag, { exited }] of this.#trees) if (exited && !isCarried(tag)) this.#trees.delete(tag);
    this.#pruneAt = Math.max(PRUNE_MIN_TREES, 2 * this.#trees.size);
  }
}

/** Shared by all backends of this server: they adopt each other's orphans, so each must know all trees. */
export const treeTags = new TreeTagRegistry();
