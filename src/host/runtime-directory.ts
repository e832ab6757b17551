import { lstatSync, mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import { errorMessage } from "../base/error-message.ts";

/**
 * Returns the directory of the per-user server's socket, lock and log. Not below XDG_RUNTIME_DIR, which is removed with the
 * user's last login session: clients must find the server again after a lost connection. If another user has taken the
 * name in /tmp, returns a directory in the user's home.
 */
export function runtimeDirectoryPath(): string {
  const { PROCWIRE_RUNTIME_DIR } = process.env;
  if (PROCWIRE_RUNTIME_DIR) return PROCWIRE_RUNTIME_DIR;
  return squatterOf(defaultPath()) === null ? defaultPath() : homePath("run");
}

/** Returns the directory of the certificate authority that terminates TLS for credentials. */
export function credentialDirectoryPath(): string {
  return homePath("credentials");
}

const defaultPath = () => join("/tmp", `procwire-${ownUid()}`);

const homePath = (name: string) => resolve(process.env.PROCWIRE_HOME || join(homedir(), ".procwire"), name);

/** Returns why this user cannot use the directory, or null if it is missing or belongs to this user. */
function squatterOf(path: string): string | null {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (!found || found.uid === ownUid()) return null;
  return `${path} belongs to user ${found.uid}, not to ${ownUid()}`;
}

/**
 * Creates the runtime directory if it is missing, and returns its path. Calls `warn` if another user has taken the usual
 * directory. Throws if another user could access the directory.
 */
export function openRuntimeDirectory(warn: (message: string) => void): string {
  const path = runtimeDirectoryPath();
  if (!process.env.PROCWIRE_RUNTIME_DIR && path !== defaultPath()) {
    const remedy = "remove that directory, or set PROCWIRE_RUNTIME_DIR";
    warn(`procwire: runtime directory ${squatterOf(defaultPath())}; using ${path}; ${remedy}`);
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  }
  ensureRuntimeDirectory(path);
  return path;
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
