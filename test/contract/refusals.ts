import { ExecServerError } from "../../src/protocol/exec-server-error.ts";

/** A refusal with this JSON-RPC number. */
export function refusedWith(rpcCode: number, message?: string): (error: unknown) => boolean {
  return (error) =>
    error instanceof ExecServerError &&
    error.rpcCode === rpcCode &&
    (message === undefined || error.message === message);
}
