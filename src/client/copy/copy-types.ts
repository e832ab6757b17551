import type { RemoteFiles } from "../files/remote-files.ts";

/** A path on a host: native and absolute, or a `file:` URI. */
export interface CopyEndpoint {
  files: RemoteFiles;
  path: string;
}

/** A destination. The copy follows symbolic links in `within`, and none below it. */
export interface CopyDestination extends CopyEndpoint {
  /** Existing directory that contains `path`. Default: `path` for a directory, its parent for a file. */
  within?: string | undefined;
}

export interface CopyFilesOptions {
  signal?: AbortSignal | undefined;
  /** Symbolic links below the source: copied as links (default), followed, or skipped. */
  links?: "keep" | "follow" | "skip" | undefined;
  /** Compares existing files by content. Default: by size and time. */
  checksum?: boolean | undefined;
  onProgress?: ((tally: CopyTotals) => void) | undefined;
  /** Called when an interruption left a partial file; the same copy resumes from it. */
  onPartialKept?: ((path: string) => void) | undefined;
}

/** Progress of a copy. */
export interface CopyTotals {
  /** Files and links that are complete, including unchanged ones. */
  files: number;
  /** Files and links that already existed unchanged. */
  unchanged: number;
  /** Bytes copied. */
  bytes: number;
  /** Files and links found so far; final once `isCounted`. */
  totalFiles: number;
  totalBytes: number;
  isCounted: boolean;
}

/** A path that could not be copied; the copy continued. */
export interface CopyProblem {
  path: string;
  message: string;
}

export interface CopyResult extends CopyTotals {
  problems: CopyProblem[];
}
