import type { Stats } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { chmod, constants, lstat, open, rename, symlink, unlink, utimes } from "node:fs/promises";
import { invalidParams, invalidRequest } from "../protocol/errors.ts";
import { decodePathText } from "../protocol/path-uri.ts";
import { besidePath } from "./beside-path.ts";
import type { PutParams, SetAttributesParams } from "./file-system.ts";
import { displayPath, type NativePath, nativeFromBytes, nativePathFromUri } from "./native-path.ts";
import { answeringOsErrors, errnoName } from "./os-error.ts";
import { NEW_FILE_MODE } from "./read-write.ts";

/** Read, write and execute of owner, group and others: a copy never makes a program that runs as somebody else. */
const PERMISSION_BITS = 0o777;

interface Attributes {
  mode?: number | undefined;
  modifiedAtMs?: number | undefined;
}

/** Makes a file or a link beside its path and renames it: nobody sees half of it, and a failure leaves nothing. */
export async function put(params: PutParams): Promise<void> {
  const { chunk, target } = params;
  if ((chunk === undefined) === (target === undefined))
    throw invalidParams("fs/put takes either the `chunk` of a file or the `target` of a link");
  const path = nativePathFromUri(params.path);
  const beside = besidePath(path);
  await answeringOsErrors(async () => {
    const there = await checkReplaceable(path);
    try {
      if (chunk !== undefined) await writeNew(beside, chunk, params, there);
      else await symlink(nativeFromBytes(Buffer.from(decodePathText(target ?? ""))), beside);
      await rename(beside, path);
    } catch (error) {
      await unlink(beside).catch(() => undefined);
      throw error;
    }
  });
}

export async function setAttributes({ path, ...attributes }: SetAttributesParams): Promise<void> {
  const native = nativePathFromUri(path);
  const { mode, modifiedAtMs } = attributes;
  await answeringOsErrors(async () => {
    if (mode !== undefined) await chmod(native, mode & PERMISSION_BITS);
    if (modifiedAtMs !== undefined) await utimes(native, modifiedAtMs / 1000, modifiedAtMs / 1000);
  });
}

/** What is at this path, if anything; refuses what a rename must not take away: a device, a pipe, a directory. */
export async function checkReplaceable(path: NativePath): Promise<Stats | null> {
  const there = await lstat(path).catch((error: unknown) => {
    if (errnoName(error) === "ENOENT") return null;
    throw error;
  });
  if (there === null || there.isFile() || there.isSymbolicLink()) return there;
  // The wire's words for a directory in the way are the system's.
  if (there.isDirectory()) throw Object.assign(new Error("a directory is in the way"), { code: "EISDIR" });
  throw invalidRequest(`path \`${displayPath(path)}\` is not a file`);
}

/** Gives a file its attributes; without a mode that of the file it replaces, else what a new file gets. */
export async function dressFile(
  file: FileHandle,
  { mode, modifiedAtMs }: Attributes,
  there: Stats | null,
): Promise<void> {
  await file.chmod((mode ?? modeOf(there)) & PERMISSION_BITS);
  if (modifiedAtMs !== undefined) await file.utimes(modifiedAtMs / 1000, modifiedAtMs / 1000);
}

/** In one step; says it plainly when the part has gone in the meantime. */
export async function replaceBy(part: NativePath, path: NativePath): Promise<void> {
  await rename(part, path).catch((error: unknown) => {
    if (errnoName(error) === "EXDEV")
      throw invalidRequest(`\`${displayPath(path)}\` is on another file system than its part`);
    throw error;
  });
}

async function writeNew(
  path: NativePath,
  data: Uint8Array,
  attributes: Attributes,
  there: Stats | null,
): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  await using file = await open(path, flags, 0o600);
  await file.writeFile(data);
  await dressFile(file, attributes, there);
}

function modeOf(there: Stats | null): number {
  return there?.isFile() ? there.mode : NEW_FILE_MODE & ~process.umask();
}
