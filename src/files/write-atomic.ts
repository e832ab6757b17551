import type { Stats } from "node:fs";
import { chmod, constants, type FileHandle, lstat, open, rename, symlink, unlink, utimes } from "node:fs/promises";
import { nullIfMissing } from "../base/error-code.ts";
import { invalidParams, invalidRequest } from "../protocol/errors.ts";
import { decodePathText } from "../protocol/path-uri.ts";
import type { SetAttributesParams, WriteAtomicParams } from "./file-system.ts";
import { displayPath, type NativePath, nativeFromBytes, nativePathFromUri, siblingPath } from "./native-path.ts";
import { reaching, withEntry } from "./open-no-follow.ts";
import { errnoNameOf, withOsErrors } from "./os-error.ts";
import { NEW_FILE_MODE, writeBytes } from "./read-write.ts";

/** Permission bits of owner, group and others, without setuid: a copy never runs as another user. */
const PERMISSION_BITS = 0o777;

interface Attributes {
  mode?: number | undefined;
  modifiedAtMs?: number | undefined;
}

/** Creates a file or link under a temporary name and renames it: no reader sees a partial file, and a failure leaves none. */
export async function writeAtomic(params: WriteAtomicParams): Promise<void> {
  const { chunk, target } = params;
  if ((chunk === undefined) === (target === undefined))
    throw invalidParams("fs/writeAtomic: exactly one of `chunk` and `target` is required");
  const named = nativePathFromUri(params.path);
  await withOsErrors(() =>
    reaching(named, params.followSymlinks, async (path) => {
      const existing = await requireReplaceable(path, named);
      const sibling = siblingPath(path);
      try {
        if (chunk !== undefined) await writeNew(sibling, chunk, params, existing);
        else await symlink(nativeFromBytes(Buffer.from(decodePathText(target ?? ""))), sibling);
        await rename(sibling, path);
      } catch (error) {
        await unlink(sibling).catch(() => undefined);
        throw error;
      }
    }),
  );
}

export async function setAttributes(params: SetAttributesParams): Promise<void> {
  const { mode, modifiedAtMs } = params;
  const set = async (path: NativePath) => {
    if (mode !== undefined) await chmod(path, mode & PERMISSION_BITS);
    if (modifiedAtMs !== undefined) await utimes(path, modifiedAtMs / 1000, modifiedAtMs / 1000);
  };
  const path = nativePathFromUri(params.path);
  await withOsErrors(() => (params.followSymlinks === false ? withEntry(path, set) : set(path)));
}

/** Returns the status of the path, null if missing; rejects a device, a pipe or a directory. */
export async function requireReplaceable(path: NativePath, named = path): Promise<Stats | null> {
  const existing = await lstat(path).catch(nullIfMissing);
  if (existing === null || existing.isFile() || existing.isSymbolicLink()) return existing;
  // The wire protocol uses the system's error for a directory.
  if (existing.isDirectory()) throw Object.assign(new Error("EISDIR: is a directory"), { code: "EISDIR" });
  throw invalidRequest(`path \`${displayPath(named)}\` is not a file`);
}

/** Sets the attributes. Without a mode the file gets that of the replaced file, or that of a new file. */
export async function applyAttributes(
  file: FileHandle,
  { mode, modifiedAtMs }: Attributes,
  replaced: Stats | null,
): Promise<void> {
  const defaultMode = replaced?.isFile() ? replaced.mode : NEW_FILE_MODE & ~process.umask();
  await file.chmod((mode ?? defaultMode) & PERMISSION_BITS);
  if (modifiedAtMs !== undefined) await file.utimes(modifiedAtMs / 1000, modifiedAtMs / 1000);
}

/** Renames atomically. Throws an invalid-request error if the paths are on different file systems. */
export async function renameOver(partial: NativePath, path: NativePath, named = path): Promise<void> {
  await rename(partial, path).catch((error: unknown) => {
    if (errnoNameOf(error) === "EXDEV")
      throw invalidRequest(`commit \`${displayPath(named)}\`: partial file is on another file system`);
    throw error;
  });
}

async function writeNew(
  path: NativePath,
  data: Uint8Array,
  attributes: Attributes,
  replaced: Stats | null,
): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  await using file = await open(path, flags, 0o600);
  await writeBytes(file, data);
  await applyAttributes(file, attributes, replaced);
}
