import { lstatSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import { errorMessage } from "../base/error-message.ts";

/**
 * Returns the directory of the per-user server's socket, lock and log. Not below XDG_RUNTIME_DIR, which is removed with the
 * user's last login session: clients must find the server again after a lost connection.
 */
export function runtimeDirectoryPath(env: NodeJS.ProcessEnv = process.env): string {
  const { PROCWIRE_RUNTIME_DIR } = env;
  if (PROCWIRE_RUNTIME_DIR) return PROCWIRE_RUNTIME_DIR;
  return join("/tmp", `procwire-${ownUid()}`);
}

/** Creates the directory if it is missing. Throws if another user could access it. */
export function ensureRuntimeDirectory(path: string): void {
  const remedy = "set PROCWIRE_RUNTIME_DIR to a directory of your own";
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (cause) {
    if (!hasErrorCode(cause, "EEXIST"))
      throw new Error(`cannot make the runtime directory ${path}: ${errorMessage(cause)}; ${remedy}`, {
        cause,
      });
  }
  // Does not follow a link, whose owner could change its target at any time.
  const found = lstatSync(path);
  if (!found.isDirectory())
    throw new Error(
      `refusing the runtime directory ${path}: it is a ${found.isSymbolicLink() ? "symbolic link" : "file"}; ${remedy}`,
    );
  if (found.uid !== ownUid())
    throw new Error(
      `refusing the runtime directory ${path}: it belongs to user ${found.uid}, not to ${ownUid()}; ${remedy}`,
    );
  if ((found.mode & 0o077) !== 0) {
    const mode = (found.mode & 0o777).toString(8).padStart(4, "0");
    throw new Error(
      `refusing the runtime directory ${path}: others may use it (mode ${mode}); chmod it to 0700, or ${remedy}`,
    );
  }
}

function ownUid(): number {
  return process.geteuid?.() ?? 0;
}
