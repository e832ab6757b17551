import type { RemoteFiles } from "../files/remote-files.ts";

/** A path of a host: native and absolute, or a `file:` URI. */
export interface CopyPlace {
  files: RemoteFiles;
  path: string;
}

export interface CopyFilesOptions {
  signal?: AbortSignal | undefined;
  /** Symbolic links below the source: copied as links (default), followed, or left out. */
  links?: "keep" | "follow" | "skip" | undefined;
  /** Whether a file that is there already is compared by its content. Default: by its size and time. */
  checksum?: boolean | undefined;
  onProgress?: ((tally: CopyTally) => void) | undefined;
  /** A part was left behind by an interruption; the same copy goes on from it. */
  onKept?: ((path: string) => void) | undefined;
}

/** How far a copy is. */
export interface CopyTally {
  /** Files and links that are at their place, those that were there before included. */
  files: number;
  /** Of these, how many were there already. */
  unchanged: number;
  /** Bytes that arrived. */
  bytes: number;
  /** Files and links found so far, and their bytes; the whole once `isCounted`. */
  totalFiles: number;
  totalBytes: number;
  isCounted: boolean;
}

/** What could not be copied, while the rest was. */
export interface CopyProblem {
  path: string;
  message: string;
}

export interface CopyResult extends CopyTally {
  problems: CopyProblem[];
}
