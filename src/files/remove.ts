import { lstat, rmdir, unlink } from "node:fs/promises";
import { internalError, invalidRequest } from "../protocol/errors.ts";
import type { RemoveParams } from "./file-system.ts";
import type { FileTrees } from "./file-trees.ts";
import { type NativePath, nativePathFromUri, pathNames } from "./native-path.ts";
import { symbolicLinkRefused, withNoFollow } from "./open-no-follow.ts";
import { errnoNameOf, withOsErrors } from "./os-error.ts";

/** Removes a file, a link (never its target) or a directory with its contents. */
export async function remove(params: RemoveParams, trees: FileTrees): Promise<void> {
  const path = nativePathFromUri(params.path);
  const recursive = params.recursive ?? true;
  if (pathNames(path).length === 0) throw invalidRequest("fs/remove does not remove the root directory");
  await withOsErrors(async () => {
    try {
      if (params.followSymlinks !== false) return await removePath(path, recursive ? trees : null);
      if (recursive) throw internalError("recursive no-follow removal is unsupported");
      await withNoFollow(path, removeEntry);
    } catch (error) {
      if ((params.force ?? true) && errnoNameOf(error) === "ENOENT") return;
      throw error;
    }
  });
}

/** Without `trees`, a directory must be empty. */
async function removePath(path: NativePath, trees: FileTrees | null): Promise<void> {
  const found = await lstat(path);
  if (!found.isDirectory()) return await unlink(path);
  await (trees ? trees.remove(path) : rmdir(path));
}

async function removeEntry(path: NativePath): Promise<void> {
  const found = await lstat(path);
  if (found.isSymbolicLink()) throw symbolicLinkRefused();
  await (found.isDirectory() ? rmdir(path) : unlink(path));
}
