import type { NativePath } from "./native-path.ts";

export interface ListedEntry {
  /** One character per byte, so that sorting follows the bytes. */
  sortKey: string;
  name: NativePath;
  /** The kind of the link's target, if the entry is a link. */
  kind: "file" | "directory" | "other";
  isSymlink: boolean;
}

export interface Listing {
  entries: ListedEntry[];
  truncated: boolean;
}

/** Operations on directories and whole trees. Errors are system errors or `RequestError`s. */
export interface FileTrees {
  /** Lists a directory with links resolved and without broken links. Reads at most `maxEntries`. */
  list(path: NativePath, maxEntries: number): Promise<Listing>;
  /** Copies the contents of a directory into an existing directory. */
  copy(source: NativePath, destination: NativePath): Promise<void>;
  /** Removes a directory and its contents. Does not follow links. */
  remove(path: NativePath): Promise<void>;
}
