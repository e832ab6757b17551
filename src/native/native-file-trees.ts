import { SliceCounter } from "../async/slices.ts";
import { unsizedTooLarge, unsupportedKind } from "../files/copy-file.ts";
import type { FileTrees, ListedEntry, Listing } from "../files/file-trees.ts";
import { joinNative, type NativePath, nativeFromBytes, nativeFromLatin1 } from "../files/native-path.ts";
import { MAX_READ_FILE_BYTES } from "../files/read-write.ts";
import type { NativeAddon, NativeListing, NativeTreeResult, TreeCallback } from "./addon.ts";

/** Directory trees by the addon, each on its own thread: libuv's few threads and the event loop stay free. */
export function nativeFileTrees(native: NativeAddon): FileTrees {
  return {
    list: (path, maxEntries) => list(native, path, maxEntries),
    copy: (source, destination) =>
      run(native, source, (onDone) =>
        native.copyTree(Buffer.from(source), Buffer.from(destination), MAX_READ_FILE_BYTES, onDone),
      ),
    remove: (path) => run(native, path, (onDone) => native.removeTree(Buffer.from(path), onDone)),
  };
}

async function list(native: NativeAddon, path: NativePath, maxEntries: number): Promise<Listing> {
  const listing = await new Promise<NativeListing>((resolve) =>
    native.listDirectory(Buffer.from(path), maxEntries, resolve),
  );
  const { errno, names, kinds, truncated } = listing;
  if (errno !== null) throw systemError(errno, path);
  const { listedKinds, linkBit } = native;
  const slices = new SliceCounter();
  const entries: ListedEntry[] = [];
  let from = 0;
  for (const kind of kinds) {
    if (slices.isOver()) await slices.next();
    const to = names.indexOf("/", from);
    const sortKey = names.slice(from, to);
    from = to + 1;
    const isSymlink = (kind & linkBit) !== 0;
    entries.push({
      sortKey,
      name: nativeFromLatin1(sortKey),
      kind: listedKinds[kind & ~linkBit] ?? "other",
      isSymlink,
    });
  }
  return { entries, truncated };
}

function systemError(errno: number, path: NativePath): Error {
  const code = process.getBuiltinModule("node:util").getSystemErrorName(-errno);
  return Object.assign(new Error(`${code}: ${path}`), { code });
}

async function run(native: NativeAddon, root: NativePath, start: (onDone: TreeCallback) => void): Promise<void> {
  const { errno, failure, path } = await new Promise<NativeTreeResult>((resolve) => start(resolve));
  const failed = path.length === 0 ? root : joinNative(root, nativeFromBytes(path));
  const kind = failure === null ? null : native.treeFailures[failure];
  if (kind === "unsupportedKind") throw unsupportedKind();
  if (kind === "unsizedTooLarge") throw unsizedTooLarge(failed);
  if (errno !== null) throw systemError(errno, failed);
}
