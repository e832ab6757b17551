import { randomBytes } from "node:crypto";
import { joinNative, type NativePath, parentOf } from "./native-path.ts";

/** A new name in the same directory, for what is to take this path's place once it is whole. */
export function besidePath(path: NativePath): NativePath {
  return joinNative(parentOf(path), `.procwire-${randomBytes(9).toString("hex")}.tmp`);
}
