import type { Stats } from "node:fs";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { internalError } from "../protocol/errors.ts";
import { encodePathText } from "../protocol/path-uri.ts";
import type { ScannedEntry, ScanParams, ScanResult } from "./file-system.ts";
import { joinNative, type NativePath, nativeFromLatin1, nativePathFromUri } from "./native-path.ts";
import { answeringOsErrors, errnoName } from "./os-error.ts";

/** One answer stays below a mebibyte with names of the usual length. */
const ENTRIES_A_PAGE = 4096;
/** Each page reads the names again; beyond this a directory is no longer read in reasonable time. */
export const MAX_SCANNED_ENTRIES = 500_000;
/** Enough to keep Node's few file threads busy without a promise for every name of a large directory. */
const LOOKUPS_AT_ONCE = 64;

/** What a path is, and a page of what a directory holds. An entry that is gone when it is looked at is left out. */
export async function scan(params: ScanParams, entriesAPage = ENTRIES_A_PAGE): Promise<ScanResult> {
  const path = nativePathFromUri(params.path);
  return await answeringOsErrors(async () => {
    const found = await stat(path);
    const self = entryOf("", found);
    if (!found.isDirectory()) return { self, entries: [], more: false };
    const all = await readdir(path, { encoding: "latin1" });
    if (all.length > MAX_SCANNED_ENTRIES)
      throw internalError(`the directory has ${all.length} entries; at most ${MAX_SCANNED_ENTRIES} are read`);
    const names = all.map((name) => {
      const native = nativeFromLatin1(name);
      return { native, name: encodePathText(native) };
    });
    names.sort((a, b) => (a.name < b.name ? -1 : 1));
    const { after } = params;
    const rest = after === undefined ? names : names.filter(({ name }) => name > after);
    const page = rest.slice(0, entriesAPage);
    const entries: ScannedEntry[] = [];
    for (let at = 0; at < page.length; at += LOOKUPS_AT_ONCE) {
      const looks = page.slice(at, at + LOOKUPS_AT_ONCE);
      const looked = await Promise.all(
        looks.map(({ name, native }) => look(name, joinNative(path, native), params.followLinks === true)),
      );
      for (const entry of looked) if (entry !== null) entries.push(entry);
    }
    return { self, entries, more: rest.length > page.length };
  });
}

async function look(name: string, path: NativePath, followLinks: boolean): Promise<ScannedEntry | null> {
  try {
    const found = await lstat(path);
    if (!found.isSymbolicLink()) return entryOf(name, found);
    const followed = followLinks ? await stat(path).catch(() => null) : null;
    if (followed !== null) return entryOf(name, followed);
    return { ...entryOf(name, found), target: encodePathText(await readlink(path, { encoding: "buffer" })) };
  } catch (error) {
    if (errnoName(error) === "ENOENT") return null;
    throw error;
  }
}

function entryOf(name: string, found: Stats): ScannedEntry {
  return {
    name,
    type: found.isFile()
      ? "file"
      : found.isDirectory()
        ? "directory"
        : found.isSymbolicLink()
          ? "symlink"
          : "other",
    size: found.size,
    mode: found.mode & 0o777,
    modifiedAtMs: found.mtimeMs,
  };
}
