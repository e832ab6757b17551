import { constants } from "node:os";
import { errnoMessage, errnoName } from "./errno-text.ts";

/** The cause of a failed start: the executable, the working directory, the request or the host's resources. */
export type SpawnErrorTarget = "program" | "cwd" | "arguments" | "resources";

export interface SpawnErrorDetails {
  /** `ENOENT`, `EACCES`, …; `EINVAL` for a request that no system call can express. */
  code: string;
  errno: number;
  /** The system call that failed: `execve`, `chdir`, `clone`, `pipe2`, … */
  syscall: string;
  path: string;
  target: SpawnErrorTarget;
}

/** A failed start. The message is the system's text in the wording of the wire protocol; the fields give the details. */
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

/** Creates the error for a failed system call, with a message such as `No such file or directory (os error 2)`. */
export function toSpawnError(errno: number, syscall: string, path: string): SpawnError {
  const code = errnoName(errno);
  const target = targetOf(code, syscall);
  return new SpawnError(errnoMessage(errno), { code, errno, syscall, path, target });
}

/** Creates the error for a request that no system call can express. */
export function spawnErrorFromRequest(message: string, path: string, options?: ErrorOptions): SpawnError {
  const { EINVAL: errno } = constants.errno;
  return new SpawnError(message, { code: "EINVAL", errno, syscall: "spawn", path, target: "arguments" }, options);
}

function targetOf(code: string, syscall: string): SpawnErrorTarget {
  if (syscall === "chdir") return "cwd";
  if (code === "E2BIG") return "arguments";
  if (syscall === "execve" && !RESOURCE_CODES.has(code)) return "program";
  return "resources";
}

const RESOURCE_CODES = new Set(["EAGAIN", "ENOMEM", "EMFILE", "ENFILE", "EIO"]);
