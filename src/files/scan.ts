import type { Stats } from "node:fs";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { nullIfMissing } from "../base/error-code.ts";
import { internalError } from "../protocol/errors.ts";
import { encodePathText } from "../protocol/path-uri.ts";
import { lookUp } from "./directories.ts";
import type { ScannedEntry, ScanParams, ScanResult } from "./file-system.ts";
import { joinNative, type NativePath, nativeFromLatin1, nativePathFromUri } from "./native-path.ts";
import { withDirectory, withNoFollow } from "./open-no-follow.ts";
import { withOsErrors } from "./os-error.ts";

/** A response with names of usual length stays below 1 MiB. */
const ENTRIES_PER_PAGE = 4096;
/** Each page reads all names again, which takes too long beyond this number. */
export const MAX_SCANNED_ENTRIES = 500_000;

/** Describes a path and one page of a directory's entries. Omits entries that are removed meanwhile. */
export async function scan(params: ScanParams, entriesPerPage = ENTRIES_PER_PAGE): Promise<ScanResult> {
  const path = nativePathFromUri(params.path);
  return await withOsErrors(async () => {
    if (params.followSymlinks !== false) {
      const found = await stat(path);
      return found.isDirectory() ? await scanDirectory(path, params, entriesPerPage) : leaf(entryOf("", found));
    }
    return await withNoFollow(path, async (safePath) => {
      const found = await lstat(safePath);
      if (found.isDirectory())
        return await withDirectory(safePath, (directory) => scanDirectory(directory, params, entriesPerPage));
      return leaf((await describeEntry("", safePath, false)) ?? entryOf("", found));
    });
  });
}

const leaf = (self: ScannedEntry): ScanResult => ({ self, entries: [], more: false });

async function scanDirectory(
  path: NativePath,
  { after, followLinks = false }: ScanParams,
  entriesPerPage: number,
): Promise<ScanResult> {
  const self = entryOf("", await stat(path));
  const all = await readdir(path, { encoding: "latin1" });
  if (all.length > MAX_SCANNED_ENTRIES)
    throw internalError(`scan: directory has ${all.length} entries; the limit is ${MAX_SCANNED_ENTRIES}`);
  const names = all.map((name) => {
    const native = nativeFromLatin1(name);
    return { native, name: encodePathText(native) };
  });
  names.sort((a, b) => (a.name < b.name ? -1 : 1));
  const rest = after === undefined ? names : names.filter(({ name }) => name > after);
  const page = rest.slice(0, entriesPerPage);
  const entries = await lookUp(page, ({ name, native }) => describeEntry(name, joinNative(path, native), followLinks));
  return { self, entries, more: rest.length > page.length };
}

async function describeEntry(name: string, path: NativePath, followLinks: boolean): Promise<ScannedEntry | null> {
  try {
    const found = await lstat(path);
    if (!found.isSymbolicLink()) return entryOf(name, found);
    const followed = followLinks ? await stat(path).catch(() => null) : null;
    if (followed !== null) return entryOf(name, followed);
    return { ...entryOf(name, found), target: encodePathText(await readlink(path, { encoding: "buffer" })) };
  } catch (error) {
    return nullIfMissing(error);
  }
}

function entryOf(name: string, found: Stats): ScannedEntry {
  return {
    name,
    type: found.isFile() ? "file" : found.isDirectory() ? "directory" : found.isSymbolicLink() ? "symlink" : "other",
    size: found.size,
    mode: found.mode & 0o777,
    modifiedAtMs: found.mtimeMs,
  };
}
