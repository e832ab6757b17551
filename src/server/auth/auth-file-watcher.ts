import { readFileSync, statSync } from "node:fs";
import type { Clock, Timer } from "../../async/clock.ts";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { ServerLog } from "../host-services.ts";
import type { AuthFiles } from "./auth-config.ts";
import type { Authenticator } from "./authenticator.ts";
import type { RevokedTokens } from "./revoked-tokens.ts";

/** Interval of the checks. A file must be unchanged for one interval, because a program may still be writing it. */
export const AUTH_FILE_CHECK_INTERVAL_MS = 1_000;

export interface AuthFileWatcherOptions {
  authenticator: Authenticator;
  /** Absent if the policy uses no file. */
  files?: AuthFiles | undefined;
  revoked?: RevokedTokens | undefined;
  /** Files of the TLS listener. `reload` reads them, and throws if one is invalid. */
  tlsFiles?: { paths: readonly string[]; reload: () => void } | undefined;
  clock: Clock;
  log: ServerLog;
}

interface FileStamps {
  /** Stamp of the file when it was read last. */
  readStamp: string;
  /** Stamp at the last check. */
  seenStamp: string;
}

interface WatchedFile extends FileStamps {
  /** Last valid content. Null: the file was deleted. */
  content: Buffer | null;
}

/**
 * Reads token and secret files again when they change, and ends the connections of tokens that are no longer valid. A file
 * that is unreadable, empty or invalid keeps its last valid content. A deleted file removes its token.
 */
export class AuthFileWatcher implements Disposable {
  readonly #options: AuthFileWatcherOptions;
  readonly #files: Map<string, WatchedFile>;
  readonly #tlsFiles: Map<string, FileStamps>;
  #revokedStamp: string;
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(options: AuthFileWatcherOptions) {
    this.#options = options;
    const { files, revoked, tlsFiles } = options;
    this.#files = new Map(
      (files?.paths ?? []).map((path) => [path, { content: readOrNull(path), ...newStamps(path) }]),
    );
    this.#tlsFiles = new Map((tlsFiles?.paths ?? []).map((path) => [path, newStamps(path)]));
    this.#revokedStamp = revoked ? stampOf(revoked.path) : "";
    this.#schedule();
  }

  /** Reads changed files at once, without waiting until they are unchanged for an interval. */
  async reload(): Promise<void> {
    await this.#check({ isForced: true });
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  #schedule(): void {
    if (this.#isClosed) return;
    const check = () => void this.#check({ isForced: false }).finally(() => this.#schedule());
    this.#timer = this.#options.clock.after(AUTH_FILE_CHECK_INTERVAL_MS, check, { keepAlive: false });
  }

  async #check({ isForced }: { isForced: boolean }): Promise<void> {
    let hasChanged = false;
    for (const [path, file] of this.#files)
      if (takeChange(path, file, isForced)) hasChanged = this.#read(path, file) || hasChanged;
    const changed = [...this.#tlsFiles].filter(([path, stamps]) => takeChange(path, stamps, isForced));
    if (changed.length > 0) this.#reloadTls(changed.map(([path]) => path).join(", "));
    hasChanged = this.#readRevoked() || hasChanged;
    if (hasChanged) await this.#options.authenticator.recheckAll();
  }

  /** Reads a file, and changes the policy if the content is valid and new. */
  #read(path: string, file: WatchedFile): boolean {
    const { files, authenticator, log } = this.#options;
    const former = file.content;
    try {
      file.content = readOrNull(path);
      if (!files || isEqual(former, file.content)) return false;
      const contents = new Map([...this.#files].map(([name, { content }]) => [name, content]));
      authenticator.setPolicy(files.parse(contents));
      log("warn", file.content === null ? `${path} was deleted; its token is no longer valid` : `read ${path} again`);
      return true;
    } catch (error) {
      file.content = former;
      log("error", `cannot use ${path}: ${errorMessage(error)}; the last valid content stays in use`);
      return false;
    }
  }

  #reloadTls(paths: string): void {
    const { tlsFiles, log } = this.#options;
    try {
      tlsFiles?.reload();
      log("warn", `read ${paths} again; clients with certificates connect again`);
    } catch (error) {
      log("error", `cannot use ${paths}: ${errorMessage(error)}; the last valid content stays in use`);
    }
  }

  #readRevoked(): boolean {
    const { revoked, log } = this.#options;
    const stamp = revoked ? stampOf(revoked.path) : "";
    if (!revoked || stamp === this.#revokedStamp) return false;
    this.#revokedStamp = stamp;
    try {
      return revoked.refresh();
    } catch (error) {
      log("error", `${errorMessage(error)}; known revoked tokens stay revoked`);
      return false;
    }
  }
}

function newStamps(path: string): FileStamps {
  const stamp = stampOf(path);
  return { readStamp: stamp, seenStamp: stamp };
}

/** Reports whether the file changed and is to be read: it was unchanged for an interval, or the read is forced. */
function takeChange(path: string, file: FileStamps, isForced: boolean): boolean {
  const stamp = stampOf(path);
  const isStable = stamp === file.seenStamp;
  file.seenStamp = stamp;
  if (stamp === file.readStamp || !(isStable || isForced)) return false;
  file.readStamp = stamp;
  return true;
}

/** Returns a text that changes with the file: identity, size and times, or the code of the error. */
function stampOf(path: string): string {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(":");
  } catch (error) {
    return hasErrorCode(error, "ENOENT") ? "deleted" : errorMessage(error);
  }
}

/** Returns the content, or null if the file does not exist. */
function readOrNull(path: string): Buffer | null {
  try {
    return readFileSync(path);
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return null;
    throw error;
  }
}

const isEqual = (a: Buffer | null, b: Buffer | null) => (a && b ? a.equals(b) : a === b);
