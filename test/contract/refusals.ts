import { ExecServerError } from "../../src/protocol/exec-server-error.ts";

/** Matches an error with this JSON-RPC code. */
export function refusedWith(rpcCode: number, message?: string): (error: unknown) => boolean {
  return (error) =>
    error instanceof ExecServerError &&
    error.rpcCode === rpcCode &&
    (message === undefined || error.message === message);
}
