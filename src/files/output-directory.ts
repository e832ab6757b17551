import {
  accessSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  renameSync,
  type Stats,
  statSync,
  unlinkSync,
} from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import path from "node:path";
import { errorMessage } from "../base/error-message.ts";
import { temporaryName } from "./native-path.ts";
import { hasDescriptorPaths, O_PATH } from "./open-no-follow.ts";
import { errnoNameOf } from "./os-error.ts";

const PERMISSION_BITS = 0o777;

export interface OutputDirectoryOptions {
  /** Creates the directory and its parents if they are missing. Default: false. */
  make?: boolean | undefined;
  /** Mode of directories that are created. Default: 0777 minus the umask. */
  mode?: number;
  /** Default: whether this system has `/proc/self/fd`. */
  hasDescriptorPaths?: boolean;
}

/**
 * A directory that procwire writes to and that sandboxed commands may also write to. It is opened before the first command
 * runs, and every file is accessed through its descriptor. So moving or replacing the directory later redirects nothing.
 * No method follows a symbolic link in the last component.
 *
 * Without `/proc` each use compares the directory at the path with the opened one, which leaves a short race.
 */
export class OutputDirectory implements Disposable {
  /** The absolute path by which the directory was opened. */
  readonly path: string;
  readonly #fd: number;
  readonly #hasDescriptorPaths: boolean;

  static open(directory: string, options: OutputDirectoryOptions = {}): OutputDirectory {
    const absolute = path.resolve(directory);
    try {
      if (options.make) mkdirSync(absolute, { recursive: true, mode: options.mode });
      const fd = openSync(absolute, O_PATH | constants.O_DIRECTORY);
      return new OutputDirectory(absolute, fd, options.hasDescriptorPaths ?? hasDescriptorPaths());
    } catch (error) {
      throw failed(absolute, error);
    }
  }

  private constructor(absolute: string, fd: number, hasDescriptorPaths: boolean) {
    this.path = absolute;
    this.#fd = fd;
    this.#hasDescriptorPaths = hasDescriptorPaths;
  }

  /** The path of the opened directory now, without symbolic links. */
  get realPath(): string {
    return this.#hasDescriptorPaths ? readlinkSync(`/proc/self/fd/${this.#fd}`) : realpathSync(this.path);
  }

  /** True if `path` no longer refers to the opened directory. */
  get hasMoved(): boolean {
    const opened = fstatSync(this.#fd);
    const current = statSync(this.path, { throwIfNoEntry: false });
    return current?.dev !== opened.dev || current.ino !== opened.ino;
  }

  /** Returns a path to an entry through the directory's descriptor. Valid in this process only. */
  entryPath(name: string): string {
    if (name === "" || name === "." || name === ".." || /[/\0]/.test(name)) {
      throw new Error(`write ${this.path}: \`${name}\` is not a file name`);
    }
    if (this.#hasDescriptorPaths) return `/proc/self/fd/${this.#fd}/${name}`;
    if (this.hasMoved) {
      throw new Error(`write ${this.#displayPath(name)}: the directory was moved or replaced; run the command again`);
    }
    return path.join(this.path, name);
  }

  /** Throws if this process has no permission to create files in the directory. */
  checkWritable(): void {
    try {
      accessSync(this.#hasDescriptorPaths ? `/proc/self/fd/${this.#fd}` : this.path, constants.W_OK);
    } catch (error) {
      throw failed(this.path, error);
    }
  }

  /** Returns an entry's status without following a link; null if it is missing. */
  status(name: string): Stats | null {
    return lstatSync(this.entryPath(name), { throwIfNoEntry: false }) ?? null;
  }

  /** Returns the regular file of this name, or null if it is missing. Throws if anything else has the name. */
  checkReplaceable(name: string): Stats | null {
    const existing = this.status(name);
    if (existing === null || existing.isFile()) return existing;
    throw notReplaceable(this.#displayPath(name), existing);
  }

  /** Creates a file under a random temporary name. It is removed on disposal unless `commit` gave it a name. */
  async create(mode = 0o666): Promise<PendingFile> {
    const temporary = temporaryName();
    const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    try {
      const handle = await open(this.entryPath(temporary), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
      return new PendingFile(this, temporary, handle);
    } catch (error) {
      throw failed(this.path, error);
    }
  }

  /** Replaces a file in one step. */
  async replace(name: string, text: string): Promise<void> {
    await using pending = await this.create();
    await pending.handle.writeFile(text);
    pending.commit(name);
  }

  /** Opens a regular file for appending and creates it with mode 0600 if it is missing. The caller closes the descriptor. */
  openAppend(name: string): number {
    const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
    let fd: number;
    try {
      // O_NONBLOCK: opening a named pipe without a reader fails and does not wait.
      fd = openSync(this.entryPath(name), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
    } catch (error) {
      this.checkReplaceable(name);
      throw failed(this.#displayPath(name), error);
    }
    const found = fstatSync(fd);
    if (found.isFile()) return fd;
    closeSync(fd);
    throw notReplaceable(this.#displayPath(name), found);
  }

  /** Renames an entry. Throws if something other than a regular file has the new name. */
  rename(from: string, to: string): void {
    this.checkReplaceable(to);
    try {
      renameSync(this.entryPath(from), this.entryPath(to));
    } catch (error) {
      throw failed(this.#displayPath(to), error);
    }
  }

  /** Removes a file or a link. No-op if it is missing. */
  remove(name: string): void {
    try {
      unlinkSync(this.entryPath(name));
    } catch (error) {
      if (errnoNameOf(error) !== "ENOENT") throw failed(this.#displayPath(name), error);
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }

  #displayPath(name: string): string {
    return path.join(this.path, name);
  }
}

/** A new file under a temporary name. Dispose it before its directory. */
export class PendingFile implements AsyncDisposable {
  readonly handle: FileHandle;
  readonly #directory: OutputDirectory;
  #name: string;
  #isCommitted = false;

  constructor(directory: OutputDirectory, name: string, handle: FileHandle) {
    this.#directory = directory;
    this.#name = name;
    this.handle = handle;
  }

  /** A path to the file. Valid in this process only. */
  get path(): string {
    return this.#directory.entryPath(this.#name);
  }

  /**
   * Gives the file its name in one step, and the permissions of the file that it replaces. Writes to `handle` stay
   * possible. Throws if something other than a regular file has the name.
   */
  commit(name: string): void {
    const replaced = this.#directory.checkReplaceable(name);
    if (replaced) fchmodSync(this.handle.fd, replaced.mode & PERMISSION_BITS);
    this.#directory.rename(this.#name, name);
    this.#name = name;
    this.#isCommitted = true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.handle.close();
    if (!this.#isCommitted) this.#directory.remove(this.#name);
  }
}

/** Returns the error for an entry that procwire neither follows nor replaces. */
function notReplaceable(file: string, existing: Stats): Error {
  const [problem, remedy] = existing.isSymbolicLink()
    ? ["a symbolic link has this name", "remove the link or name its target"]
    : existing.isDirectory()
      ? ["it is a directory", "name a file"]
      : ["it is not a regular file", "remove it or name another file"];
  return new Error(`write ${file}: ${problem}; ${remedy}`);
}

function failed(file: string, cause: unknown): Error {
  // The system's message ends with the path of the call, which contains a descriptor number.
  const reason = errorMessage(cause).replace(/, [a-z]+ '.*$/s, "");
  return new Error(`write ${file}: ${reason}`, { cause });
}
