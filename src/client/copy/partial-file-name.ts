/** What the name of a part ends with. */
const PART_SUFFIX = ".procwire-part";
/** A name may have 255 bytes; of a longer one the hash alone is taken. */
const LONGEST_SHOWN_NAME = 180;

/** What a part is a part of: another content at the same place is another one. */
export interface PartSource {
  path: string;
  size: number;
  modifiedAtMs: number;
}

/**
 * The path of the part of a file, beside it: the same for the same source, so that the same copy finds it again, and another
 * for every other, so that no two copies write into one.
 */
export function partPath(destination: string, source: PartSource): string {
  const at = destination.lastIndexOf("/");
  const name = destination.slice(at + 1);
  const mark = hash64(`${source.path} ${source.size} ${Math.round(source.modifiedAtMs)}`);
  const shown = new TextEncoder().encode(name).length <= LONGEST_SHOWN_NAME ? `${name}.` : "";
  return `${destination.slice(0, at)}/.${shown}${mark}${PART_SUFFIX}`;
}

/** FNV-1a over 64 bits: names must differ, nobody has to be kept from making two alike. */
function hash64(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, "0");
}
