import { lstat, mkdir, opendir, readlink, realpath, stat, symlink } from "node:fs/promises";
import { nullIfMissing } from "../base/error-code.ts";
import { invalidRequest } from "../protocol/errors.ts";
import { copyRegularFile, unsupportedKind } from "./copy-file.ts";
import { makeUnlessDirectory } from "./directories.ts";
import type { CopyParams } from "./file-system.ts";
import type { FileTrees } from "./file-trees.ts";
import type { NativePath } from "./native-path.ts";
import {
  joinNative,
  latin1Path,
  nativeFromBytes,
  nativeFromLatin1,
  nativePathFromUri,
  pathNames,
} from "./native-path.ts";
import { withOsErrors } from "./os-error.ts";

/**
 * Copies a file over an existing file, a link as a link, and a directory into an existing or a new directory. Skips
 * entries of a directory that are not files, links or directories. Copying a file onto itself changes nothing.
 */
export async function copy(params: CopyParams, trees: FileTrees): Promise<void> {
  const source = nativePathFromUri(params.sourcePath);
  const destination = nativePathFromUri(params.destinationPath);
  await withOsErrors(async () => {
    const kind = kindOf(await lstat(source));
    if (kind === "other") throw unsupportedKind();
    if (kind !== "directory") return await copyOne(kind, source, destination);
    if (!params.recursive) throw invalidRequest("fs/copy requires recursive: true when sourcePath is a directory");
    await refuseCopyIntoItself(source, destination);
    await mkdir(destination, { recursive: true });
    await trees.copy(source, destination);
  });
}

type Kind = "file" | "symlink" | "directory" | "other";

/** Copies a tree entry by entry, for hosts without the addon. */
export async function copyTree(source: NativePath, destination: NativePath): Promise<void> {
  // An explicit stack, because a tree may be deeper than the call stack.
  const pending: [from: NativePath, to: NativePath][] = [[source, destination]];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const [from, to] = next;
    for await (const entry of await opendir(from, { encoding: "latin1" })) {
      const name = nativeFromLatin1(entry.name);
      const fromEntry = joinNative(from, name);
      const toEntry = joinNative(to, name);
      const kind = kindOf(await lstat(fromEntry));
      if (kind === "other") continue;
      if (kind === "directory") {
        await makeUnlessDirectory(toEntry, stat, "EEXIST");
        pending.push([fromEntry, toEntry]);
      } else {
        await copyOne(kind, fromEntry, toEntry);
      }
    }
  }
}

async function copyOne(kind: "file" | "symlink", source: NativePath, destination: NativePath): Promise<void> {
  if (kind === "symlink") {
    const target = await readlink(source, { encoding: "buffer" });
    return await symlink(target, destination);
  }
  await copyRegularFile(source, destination);
}

function kindOf(found: { isFile(): boolean; isSymbolicLink(): boolean; isDirectory(): boolean }): Kind {
  if (found.isFile()) return "file";
  if (found.isSymbolicLink()) return "symlink";
  return found.isDirectory() ? "directory" : "other";
}

async function refuseCopyIntoItself(source: NativePath, destination: NativePath): Promise<void> {
  const from = await realNames(source);
  const to = await realNames(destination);
  if (from.every((name, at) => to[at] === name)) {
    throw invalidRequest("fs/copy cannot copy a directory to itself or one of its descendants");
  }
}

/** Returns the names of a path with links resolved as far as it exists, one character per byte. */
async function realNames(path: NativePath): Promise<string[]> {
  const names = pathNames(path);
  const missing: NativePath[] = [];
  for (;;) {
    const here = names.reduce<NativePath>(joinNative, "/");
    const real = await realpath(here, { encoding: "buffer" }).catch(nullIfMissing);
    if (real !== null) {
      return [...pathNames(nativeFromBytes(real)), ...missing].map(latin1Path);
    }
    const last = names.pop();
    if (last === undefined) return [];
    missing.unshift(last);
  }
}
