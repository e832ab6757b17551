import { closeSync, constants, fstatSync, openSync, realpathSync, statSync, writeSync } from "node:fs";
import { type Clock, systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { Principal } from "../auth/principal.ts";

/** The principal and session that act. `session` is a number, because session ids are secret. */
export interface Actor {
  principal: Principal["id"];
  session: number;
}

/** A process by its handle and by its process id in the acting session. */
export interface AuditedProcess {
  processId?: string | undefined;
  handle?: string | undefined;
}

export type AuditEvent =
  | ({ event: "start"; argv: readonly string[]; cwd: string; tty: boolean } & AuditedProcess)
  | { event: "start-refused"; processId: string; argv: readonly string[]; reason: string }
  | ({ event: "write"; bytes: number; status: string } & AuditedProcess)
  | ({ event: "close-stdin"; status: string } & AuditedProcess)
  | ({ event: "signal"; signal: string } & AuditedProcess)
  | ({ event: "terminate"; mode: "force" | "graceful" } & AuditedProcess)
  | ({ event: "attach"; role: "viewer" | "driver" } & AuditedProcess)
  | ({ event: "detach" } & AuditedProcess)
  | ({ event: "share"; role: "viewer" | "driver"; ttlMs: number } & AuditedProcess)
  | { event: "forward"; target: string }
  | { event: "forward-refused"; target: string }
  | { event: "forward-listen"; address: string }
  | { event: "session"; change: "opened" | "resumed" | "taken over" }
  | ({ event: "end"; exitCode: number | null; signal: string | null; reason: string } & AuditedProcess);

/** Interval of rotation checks. Between a rename and the next check, lines go to the renamed file. */
const ROTATION_CHECK_INTERVAL_MS = 1_000;

/**
 * A log with one JSON line per action on a process. Each line is one synchronous write, so that readers can follow
 * the file and lines survive a crash. After the file is renamed or removed, lines go to a new file. A line that
 * cannot be written (full disk) is dropped; the next line reports the count.
 */
export class AuditLog {
  readonly #path: string;
  readonly #clock: Clock;
  #fd: number;
  #rotationCheckedAtMs: number;
  #dropped = 0;

  /** Throws if the file cannot be opened: a server with `--audit` does not start without its log. */
  constructor(path: string, clock: Clock = systemClock) {
    this.#clock = clock;
    try {
      this.#fd = open(path);
      this.#path = resolveLinks(path);
    } catch (cause) {
      throw new Error(`cannot write the audit log ${path}: ${errorMessage(cause)}`, { cause });
    }
    this.#rotationCheckedAtMs = clock.monotonic();
  }

  write(actor: Actor | null, event: AuditEvent): void {
    this.#followRotation();
    const dropped = this.#dropped > 0 ? { droppedLines: this.#dropped } : {};
    const time = new Date(this.#clock.now()).toISOString();
    const line = Buffer.from(`${JSON.stringify({ time, ...actor, ...event, ...dropped })}\n`);
    try {
      if (writeSync(this.#fd, line) === line.length) this.#dropped = 0;
      else this.#dropped++;
    } catch {
      this.#dropped++;
    }
  }

  close(): void {
    closeSync(this.#fd);
  }

  #followRotation(): void {
    if (this.#clock.monotonic() - this.#rotationCheckedAtMs < ROTATION_CHECK_INTERVAL_MS) return;
    this.#rotationCheckedAtMs = this.#clock.monotonic();
    if (isSameFile(this.#fd, this.#path)) return;
    try {
      const fd = open(this.#path, O_NOFOLLOW | O_NONBLOCK);
      const former = fstatSync(fd).isFile() ? this.#fd : fd;
      if (former !== fd) this.#fd = fd;
      closeSync(former);
    } catch {
      // No free descriptor, no directory, or a link or pipe at the path: later lines go to the old file.
    }
  }
}

const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;

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

function isSameFile(fd: number, path: string): boolean {
  try {
    const [opened, named] = [fstatSync(fd), statSync(path)];
    return opened.ino === named.ino && opened.dev === named.dev;
  } catch {
    return false;
  }
}
