import { rm } from "node:fs/promises";
import { copy, copyTree } from "./copy.ts";
import { createDirectory, listDirectory, MAX_DIRECTORY_ENTRIES, readDirectory } from "./directories.ts";
import { FileHandles } from "./file-handles.ts";
import type { FileSystem } from "./file-system.ts";
import type { FileTrees } from "./file-trees.ts";
import { canonicalize, getMetadata } from "./metadata.ts";
import { MissingWatches } from "./missing-path-watches.ts";
import { openFile, writeFile } from "./read-write.ts";
import { remove } from "./remove.ts";
import { scan } from "./scan.ts";
import { walk } from "./walk.ts";
import { setAttributes, writeAtomic } from "./write-atomic.ts";

/** Returns the files of the local host, with the permissions of this process. Default: trees without the addon. */
export function createLocalFileSystem(trees: FileTrees = plainFileTrees): FileSystem {
  return {
    openFile,
    writeFile,
    createDirectory,
    getMetadata,
    canonicalize,
    readDirectory: (params) => readDirectory(params, MAX_DIRECTORY_ENTRIES, trees.list),
    walk: (params) => walk(params, trees.list),
    remove: (params) => remove(params, trees),
    copy: (params) => copy(params, trees),
    scan: (params) => scan(params),
    writeAtomic,
    setAttributes,
    openHandles: (acquire) => new FileHandles(acquire),
    openWatches: (onChanged, acquire) => new MissingWatches(onChanged, { acquire }),
  };
}

/** Directory trees by Node, entry by entry. */
export const plainFileTrees: FileTrees = {
  list: listDirectory,
  copy: copyTree,
  remove: (path) => rm(path, { recursive: true }),
};
