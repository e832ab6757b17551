import { lstatSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../base/error-message.ts";

/**
 * Where a user's own server has its socket, lock and log. Not below XDG_RUNTIME_DIR: that vanishes when the user's last
 * session ends, and a server has to be found again after a cut connection.
 */
export function runtimeDirectoryPath(env: NodeJS.ProcessEnv = process.env): string {
  const { PROCWIRE_RUNTIME_DIR } = env;
  if (PROCWIRE_RUNTIME_DIR) return PROCWIRE_RUNTIME_DIR;
  return join("/tmp", `procwire-${ownUid()}`);
}

/** Makes it where it is missing. Throws where somebody else could reach into it. */
export function openRuntimeDirectory(path: string): void {
  const how = "set PROCWIRE_RUNTIME_DIR to a folder of your own";
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (cause) {
    const isThere = cause instanceof Error && "code" in cause && cause.code === "EEXIST";
    if (!isThere)
      throw new Error(`cannot make the runtime directory ${path}: ${messageOf(cause)}; ${how}`, { cause });
  }
  // Not what a link points to: whoever made the link could point it elsewhere a moment later.
  const found = lstatSync(path);
  if (!found.isDirectory())
    throw new Error(
      `refusing the runtime directory ${path}: it is a ${found.isSymbolicLink() ? "symbolic link" : "file"}; ${how}`,
    );
  if (found.uid !== ownUid())
    throw new Error(
      `refusing the runtime directory ${path}: it belongs to user ${found.uid}, not to ${ownUid()}; ${how}`,
    );
  if ((found.mode & 0o077) !== 0) {
    const mode = (found.mode & 0o777).toString(8).padStart(4, "0");
    throw new Error(
      `refusing the runtime directory ${path}: others may use it (mode ${mode}); chmod it to 0700, or ${how}`,
    );
  }
}

function ownUid(): number {
  return process.geteuid?.() ?? 0;
}
