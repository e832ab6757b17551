import { closeSync, fstatSync, openSync, statSync, writeSync } from "node:fs";
import { type Clock, systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import type { Principal } from "../principal.ts";

/** Who did it: `session` names no session, but tells the sessions of one server apart. */
export interface Actor {
  principal: Principal["id"];
  session: number;
}

/** A process by its public name, and by the id that the acting session has for it. */
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

/** A moved file is noticed within this time; lines until then are in the file that was moved. */
const LOOK_EVERY_MS = 1_000;

/**
 * One JSON line for everything that was done to a process, and by whom. Lines are written at once and whole, so they can
 * be followed and survive a crash. The file may be moved or removed at any time: the next lines go to a new one. A line
 * that cannot be written (a full disk) is dropped, counted, and told with the next that can be.
 */
export class AuditLog {
  readonly #path: string;
  readonly #clock: Clock;
  #fd: number;
  #lookedAtMs: number;
  #dropped = 0;

  /** Throws when the file cannot be opened: a server that was told to keep one does not start without. */
  constructor(path: string, clock: Clock = systemClock) {
    this.#path = path;
    this.#clock = clock;
    try {
      this.#fd = open(path);
    } catch (cause) {
      throw new Error(`cannot write the audit log ${path}: ${messageOf(cause)}`, { cause });
    }
    this.#lookedAtMs = clock.monotonic();
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
    if (this.#clock.monotonic() - this.#lookedAtMs < LOOK_EVERY_MS) return;
    this.#lookedAtMs = this.#clock.monotonic();
    if (isSameFile(this.#fd, this.#path)) return;
    try {
      const fd = open(this.#path);
      closeSync(this.#fd);
      this.#fd = fd;
    } catch {
      // No descriptor or no folder now: the old file goes on taking the lines.
    }
  }
}

/** Only the owner reads it: it tells who runs what. */
const open = (path: string) => openSync(path, "a", 0o600);

function isSameFile(fd: number, path: string): boolean {
  try {
    const [mine, there] = [fstatSync(fd), statSync(path)];
    return mine.ino === there.ino && mine.dev === there.dev;
  } catch {
    return false;
  }
}
