import { lstat, rm, rmdir, unlink } from "node:fs/promises";
import { internalError, invalidRequest } from "../protocol/errors.ts";
import type { RemoveParams } from "./file-system.ts";
import { symbolicLinkRefused } from "./metadata.ts";
import { type NativePath, nativePathFromUri, pathNames } from "./native-path.ts";
import { withoutFollowing } from "./no-follow.ts";
import { answeringOsErrors, errnoName } from "./os-error.ts";

/** Removes a file, a link (never what it leads to) or a directory with what is in it. */
export async function remove(params: RemoveParams): Promise<void> {
  const path = nativePathFromUri(params.path);
  const recursive = params.recursive ?? true;
  if (pathNames(path).length === 0) throw invalidRequest("fs/remove does not remove the root directory");
  await answeringOsErrors(async () => {
    try {
      if (params.followSymlinks !== false) return await removePath(path, recursive);
      if (recursive) throw internalError("recursive no-follow removal is unsupported");
      await withoutFollowing(path, {}, removeOne);
    } catch (error) {
      if ((params.force ?? true) && errnoName(error) === "ENOENT") return;
      throw error;
    }
  });
}

async function removePath(path: NativePath, recursive: boolean): Promise<void> {
  const found = await lstat(path);
  if (!found.isDirectory()) return await unlink(path);
  if (!recursive) return await rmdir(path);
  await rm(path, { recursive: true });
}

async function removeOne(path: NativePath): Promise<void> {
  const found = await lstat(path);
  if (found.isSymbolicLink()) throw symbolicLinkRefused();
  await (found.isDirectory() ? rmdir(path) : unlink(path));
}
