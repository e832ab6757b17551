/** Suffix of a partial file's name. */
const PARTIAL_SUFFIX = ".procwire-part";
/** Maximum bytes of a name that the partial name includes, because a name has at most 255 bytes. */
const MAX_INCLUDED_NAME_BYTES = 180;

/** The content that a partial file belongs to; changed content has a new partial file. */
export interface CopySource {
  path: string;
  size: number;
  modifiedAtMs: number;
}

/**
 * Returns the path of the partial file, in the directory of the destination. The same source gives the same path, so
 * that a repeated copy finds it. A different source gives a different path, so that no two copies write to one file.
 */
export function partialFilePath(destination: string, source: CopySource): string {
  const at = destination.lastIndexOf("/");
  const name = destination.slice(at + 1);
  const hash = hash64(`${source.path} ${source.size} ${Math.round(source.modifiedAtMs)}`);
  const prefix = new TextEncoder().encode(name).length <= MAX_INCLUDED_NAME_BYTES ? `${name}.` : "";
  return `${destination.slice(0, at)}/.${prefix}${hash}${PARTIAL_SUFFIX}`;
}

/** 64-bit FNV-1a. Not cryptographic, because collisions do not affect security. */
function hash64(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, "0");
}
