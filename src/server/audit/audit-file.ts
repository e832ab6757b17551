import type { Stats } from "node:fs";
import { closeSync, constants, fstatSync, ftruncateSync, openSync, realpathSync, statSync, writeSync } from "node:fs";
import { getSystemErrorName } from "node:util";
import { type ChainPosition, type FileTail, findRotatedTail, readTail } from "./audit-chain.ts";

/** System calls that Node lacks. Absent without the native addon. */
export interface AuditSystem {
  /** Locks a file until its descriptor is closed. Returns the errno, or null. */
  lockFile(fd: number): number | null;
  /** Reserves disk space without changing the size of the file. Returns the errno, or null. */
  reserveSpace(fd: number, offset: number, length: number): number | null;
  /** Returns a connected, non-blocking datagram socket, or the errno. */
  connectDatagram(path: string): [descriptor: number] | number;
}

/** Minimum space reserved for the lines of calls in progress: about a thousand lines, or ten of the largest. */
const MIN_RESERVED_BYTES = 256 * 1024;
/** Space reserved at once, so that most calls reserve nothing. */
const RESERVE_STEP_BYTES = 1024 * 1024;

const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;

/** The file of an audit log. One server at a time writes it, and reserves the space of its next lines. */
export class AuditFile {
  readonly #system: AuditSystem | null;
  /** Path without symbolic links. */
  readonly #path: string;
  #fd: number;
  #isRegular: boolean;
  #size = 0;
  /** Offset up to which the file system has reserved space. */
  #reservedUntil = 0;
  /** False if the file system cannot reserve space for this file. */
  #canReserve = true;

  /** Opens the file. Throws if it cannot be opened, or another server writes it. */
  constructor(path: string, system: AuditSystem | null) {
    this.#system = system;
    this.#fd = open(path);
    this.#path = resolveLinks(path);
    this.#isRegular = fstatSync(this.#fd).isFile();
    try {
      this.#lock(this.#fd);
    } catch (error) {
      closeSync(this.#fd);
      throw error;
    }
    this.#resetSize(fstatSync(this.#fd));
  }

  /** Returns the end of the file. Anything but a regular file has none. */
  tail(): FileTail {
    return this.#isRegular ? readTail(this.#path) : { last: null, fragment: Buffer.alloc(0), size: 0 };
  }

  /** Returns the incomplete last line; empty if there is none, or the file cannot be read. */
  fragment(): Buffer {
    try {
      return this.tail().fragment;
    } catch {
      return Buffer.alloc(0);
    }
  }

  /** Returns the last line of the rotated files, or null. */
  rotatedTail(): ChainPosition | null {
    return this.#isRegular ? findRotatedTail(this.#path) : null;
  }

  /** Appends a complete line. Throws the system error otherwise, after it removed the beginning of the line if it can. */
  append(line: Buffer): void {
    let written = 0;
    try {
      while (written < line.length) written += writeSync(this.#fd, line, written);
    } catch (error) {
      if (written > 0) this.#truncate(written);
      throw error;
    }
    this.#size += written;
  }

  /** Reserves space for the next lines. Returns null, or the name of the system error if the disk is full. */
  reserve(): string | null {
    if (!this.#system || !this.#isRegular || !this.#canReserve) return null;
    if (this.#reservedUntil - this.#size >= MIN_RESERVED_BYTES) return null;
    const errno = this.#system.reserveSpace(this.#fd, this.#size, RESERVE_STEP_BYTES);
    if (errno === null) {
      this.#reservedUntil = this.#size + RESERVE_STEP_BYTES;
      return null;
    }
    const code = getSystemErrorName(-errno);
    if (DISK_FULL.has(code)) return code;
    // The file system cannot reserve space.
    this.#canReserve = false;
    return null;
  }

  /**
   * Opens a new file if this one was renamed or removed, and reports whether it did. Keeps this file if the new one cannot
   * be opened, is not a regular file, or another server writes it.
   */
  followRotation(): boolean {
    const opened = fstatSync(this.#fd);
    if (isSameFile(opened, this.#path)) {
      // Truncation by another program also removes the reserved space.
      if (opened.size < this.#size) this.#resetSize(opened);
      return false;
    }
    let fd: number | null = null;
    try {
      fd = open(this.#path, O_NOFOLLOW | O_NONBLOCK);
      const stats = fstatSync(fd);
      if (!stats.isFile()) throw new Error("not a regular file");
      this.#lock(fd);
      this.close();
      this.#fd = fd;
      this.#isRegular = true;
      this.#resetSize(stats);
      return true;
    } catch {
      // No free descriptor, no directory, or a link or pipe at the path: later lines go to the old file.
      if (fd !== null && fd !== this.#fd) closeSync(fd);
      return false;
    }
  }

  /** Returns the reserved space, and closes the file, which also unlocks it. */
  close(): void {
    if (this.#reservedUntil > this.#size) this.#truncate(0);
    closeSync(this.#fd);
  }

  /** Removes the last bytes of the file, and the reserved space. Does nothing if the file may only grow. */
  #truncate(bytes: number): void {
    if (!this.#isRegular) return;
    try {
      ftruncateSync(this.#fd, Math.max(0, fstatSync(this.#fd).size - bytes));
      this.#forgetReservation();
    } catch {
      // `chattr +a` allows only appending. The next write ends the incomplete line.
    }
  }

  #lock(fd: number): void {
    const errno = this.#system && fstatSync(fd).isFile() ? this.#system.lockFile(fd) : null;
    if (errno === null) return;
    const code = getSystemErrorName(-errno);
    if (code === "EAGAIN") throw new Error("another server writes this file; give each server its own file");
    // The file system has no locks.
    if (code !== "ENOLCK" && code !== "EOPNOTSUPP") throw new Error(`cannot lock the file: ${code}`);
  }

  #resetSize({ size }: Stats): void {
    this.#size = size;
    this.#forgetReservation();
  }

  #forgetReservation(): void {
    this.#reservedUntil = 0;
    this.#canReserve = true;
  }
}

const DISK_FULL: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT", "EFBIG", "EIO"]);

/** Mode 0600: the log contains the commands of all users. */
const open = (path: string, flags = 0) => openSync(path, O_WRONLY | O_APPEND | O_CREAT | flags, 0o600);

/** Returns the path without symbolic links, or the path itself if it cannot be resolved (`/dev/stderr` on a pipe). */
function resolveLinks(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function isSameFile(opened: Stats, path: string): boolean {
  try {
    const named = statSync(path);
    return opened.ino === named.ino && opened.dev === named.dev;
  } catch {
    return false;
  }
}
