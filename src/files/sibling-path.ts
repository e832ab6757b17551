import { randomBytes } from "node:crypto";
import { joinNative, type NativePath, parentOf } from "./native-path.ts";

/** Returns a temporary path in the same directory, for a file that replaces `path` when it is complete. */
export function siblingPath(path: NativePath): NativePath {
  return joinNative(parentOf(path), temporaryName());
}

/** Returns a random name for a file that is renamed once it is complete. */
export function temporaryName(): string {
  return `.procwire-${randomBytes(9).toString("hex")}.tmp`;
}
