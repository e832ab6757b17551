import { copy } from "./copy.ts";
import { createDirectory, readDirectory } from "./directories.ts";
import { FileHandles } from "./file-handles.ts";
import type { FileSystem } from "./file-system.ts";
import { canonicalize, getMetadata } from "./metadata.ts";
import { MissingWatches } from "./missing-path-watches.ts";
import { readFile, writeFile } from "./read-write.ts";
import { remove } from "./remove.ts";
import { scan } from "./scan.ts";
import { walk } from "./walk.ts";
import { setAttributes, writeAtomic } from "./write-atomic.ts";

/** The files of the local host, with the permissions of this process. */
export const localFileSystem: FileSystem = {
  readFile: (params, admit) => readFile(params, { admit }),
  writeFile,
  createDirectory,
  getMetadata,
  canonicalize,
  readDirectory: (params) => readDirectory(params),
  walk,
  remove,
  copy,
  scan: (params) => scan(params),
  writeAtomic,
  setAttributes,
  openHandles: (acquire) => new FileHandles(acquire),
  openWatches: (onChanged, acquire) => new MissingWatches(onChanged, { acquire }),
};
