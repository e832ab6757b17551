import { constants } from "node:os";
import { ErrorCode, RequestError } from "../protocol/errors.ts";

/** The wire's words for a system error, `No such file or directory (os error 2)`, from its name (`ENOENT`). */
export function osErrorText(errnoName: string): string {
  const number = errnoNumbers.get(errnoName);
  const text = TEXTS[errnoName] ?? errnoName;
  return number === undefined ? text : `${text} (os error ${number})`;
}

/** What a failed system call answers with; anything that is no system error is passed on as it is. */
export function osRequestError(error: unknown): unknown {
  const name = errnoName(error);
  if (name === null) return error;
  return new RequestError(codeOf(name), osErrorText(name), { cause: error });
}

/** The errno name of an error that a system call ended with, or null when it is some other error. */
export function errnoName(error: unknown): string | null {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return null;
  return errnoNumbers.has(error.code) ? error.code : null;
}

/** Runs file system calls and turns their failure into an answer. */
export async function answeringOsErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw osRequestError(error);
  }
}

function codeOf(name: string): number {
  if (name === "ENOENT") return ErrorCode.notFound;
  if (name === "EACCES" || name === "EPERM" || name === "EINVAL") return ErrorCode.invalidRequest;
  return ErrorCode.internal;
}

const errnoNumbers: ReadonlyMap<string, number> = new Map(Object.entries(constants.errno));

/** Musl's words, not glibc's: the protocol's texts come from a musl binary, and clients may look for them. */
const TEXTS: Readonly<Record<string, string>> = {
  E2BIG: "Argument list too long",
  EACCES: "Permission denied",
  EADDRINUSE: "Address in use",
  EADDRNOTAVAIL: "Address not available",
  EAFNOSUPPORT: "Address family not supported by protocol",
  EAGAIN: "Resource temporarily unavailable",
  EALREADY: "Operation already in progress",
  EBADF: "Bad file descriptor",
  EBADMSG: "Bad message",
  EBUSY: "Resource busy",
  ECANCELED: "Operation canceled",
  ECHILD: "No child process",
  ECONNABORTED: "Connection aborted",
  ECONNREFUSED: "Connection refused",
  ECONNRESET: "Connection reset by peer",
  EDEADLK: "Resource deadlock would occur",
  EDESTADDRREQ: "Destination address required",
  EDOM: "Domain error",
  EDQUOT: "Quota exceeded",
  EEXIST: "File exists",
  EFAULT: "Bad address",
  EFBIG: "File too large",
  EHOSTUNREACH: "Host is unreachable",
  EIDRM: "Identifier removed",
  EILSEQ: "Illegal byte sequence",
  EINPROGRESS: "Operation in progress",
  EINTR: "Interrupted system call",
  EINVAL: "Invalid argument",
  EIO: "I/O error",
  EISCONN: "Socket is connected",
  EISDIR: "Is a directory",
  ELOOP: "Symbolic link loop",
  EMFILE: "No file descriptors available",
  EMLINK: "Too many links",
  EMSGSIZE: "Message too large",
  ENAMETOOLONG: "Filename too long",
  ENETDOWN: "Network is down",
  ENETRESET: "Connection reset by network",
  ENETUNREACH: "Network unreachable",
  ENFILE: "Too many open files in system",
  ENOBUFS: "No buffer space available",
  ENODATA: "No data available",
  ENODEV: "No such device",
  ENOENT: "No such file or directory",
  ENOEXEC: "Exec format error",
  ENOLCK: "No locks available",
  ENOLINK: "Link has been severed",
  ENOMEM: "Out of memory",
  ENOMSG: "No message of desired type",
  ENOPROTOOPT: "Protocol not available",
  ENOSPC: "No space left on device",
  ENOSR: "Out of streams resources",
  ENOSTR: "Device not a stream",
  ENOSYS: "Function not implemented",
  ENOTCONN: "Socket not connected",
  ENOTDIR: "Not a directory",
  ENOTEMPTY: "Directory not empty",
  ENOTSOCK: "Not a socket",
  ENOTSUP: "Not supported",
  ENOTTY: "Not a tty",
  ENXIO: "No such device or address",
  EOPNOTSUPP: "Not supported",
  EOVERFLOW: "Value too large for data type",
  EPERM: "Operation not permitted",
  EPIPE: "Broken pipe",
  EPROTO: "Protocol error",
  EPROTONOSUPPORT: "Protocol not supported",
  EPROTOTYPE: "Protocol wrong type for socket",
  ERANGE: "Result not representable",
  EROFS: "Read-only file system",
  ESPIPE: "Invalid seek",
  ESRCH: "No such process",
  ESTALE: "Stale file handle",
  ETIME: "Device timeout",
  ETIMEDOUT: "Operation timed out",
  ETXTBSY: "Text file busy",
  EWOULDBLOCK: "Resource temporarily unavailable",
  EXDEV: "Cross-device link",
};
