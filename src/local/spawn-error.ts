import { constants } from "node:os";
import { errnoName, errnoText } from "./errno-text.ts";

/** What could not be used: the program itself, the directory it was to start in, or the machine's resources. */
export type SpawnErrorTarget = "program" | "cwd" | "arguments" | "resources";

export interface SpawnErrorDetails {
  /** `ENOENT`, `EACCES`, …; `EINVAL` for a request no system could take. */
  code: string;
  errno: number;
  /** The call that failed: `execve`, `chdir`, `clone`, `pipe2`, … */
  syscall: string;
  path: string;
  target: SpawnErrorTarget;
}

/** A program that could not be started. The message is the system's own text as the wire carries it; the fields tell more. */
export class SpawnError extends Error {
  override readonly name = "SpawnError";
  readonly code: string;
  readonly errno: number;
  readonly syscall: string;
  readonly path: string;
  readonly target: SpawnErrorTarget;

  constructor(message: string, details: SpawnErrorDetails, options?: ErrorOptions) {
    super(message, options);
    this.code = details.code;
    this.errno = details.errno;
    this.syscall = details.syscall;
    this.path = details.path;
    this.target = details.target;
  }
}

/** The error for a failed call: `No such file or directory (os error 2)`. */
export function spawnErrorFromErrno(errno: number, syscall: string, path: string): SpawnError {
  const code = errnoName(errno);
  return new SpawnError(errnoText(errno), {
    code,
    errno,
    syscall,
    path,
    target: targetOf(code, syscall),
  });
}

/** A request that no system call could carry. */
export function spawnErrorFromRequest(message: string, path: string): SpawnError {
  return new SpawnError(message, {
    code: "EINVAL",
    errno: constants.errno.EINVAL,
    syscall: "spawn",
    path,
    target: "arguments",
  });
}

function targetOf(code: string, syscall: string): SpawnErrorTarget {
  if (syscall === "chdir") return "cwd";
  if (code === "E2BIG") return "arguments";
  if (syscall === "execve" && !RESOURCE_CODES.has(code)) return "program";
  return "resources";
}

const RESOURCE_CODES = new Set(["EAGAIN", "ENOMEM", "EMFILE", "ENFILE", "EIO"]);
