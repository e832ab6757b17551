import type { Stats } from "node:fs";
import { lstat, realpath, stat } from "node:fs/promises";
import { uriFromPath } from "../protocol/path-uri.ts";
import type { FileMetadata, GetMetadataParams } from "./file-system.ts";
import { nativeFromBytes, nativePathFromUri } from "./native-path.ts";
import { symbolicLinkRefused, withNoFollow } from "./open-no-follow.ts";
import { withOsErrors } from "./os-error.ts";

export async function getMetadata(params: GetMetadataParams): Promise<FileMetadata> {
  const path = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    if (params.followSymlinks === false) {
      const found = await withNoFollow(path, (safePath) => lstat(safePath));
      if (found.isSymbolicLink()) throw symbolicLinkRefused();
      return metadata(found, false);
    }
    const found = await lstat(path);
    if (!found.isSymbolicLink()) return metadata(found, false);
    return metadata(await stat(path), true);
  });
}

export async function canonicalize(params: { path: string }): Promise<{ path: string }> {
  const path = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    const real = await realpath(path, { encoding: "buffer" });
    return { path: uriFromPath(nativeFromBytes(real)) };
  });
}

function metadata(found: Stats, isSymlink: boolean): FileMetadata {
  return {
    isDirectory: found.isDirectory(),
    isFile: found.isFile(),
    isSymlink,
    size: found.size,
    createdAtMs: Math.max(0, Math.floor(found.birthtimeMs)),
    modifiedAtMs: Math.floor(found.mtimeMs),
  };
}
