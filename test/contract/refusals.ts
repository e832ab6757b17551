import { RequestError } from "../../src/protocol/errors.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";

/** A refusal with this JSON-RPC number: an ExecServerError from a client, the bare RequestError from this machine's backend. */
export function refusedWith(rpcCode: number, message?: string): (error: unknown) => boolean {
  return (error) => {
    const number =
      error instanceof RequestError ? error.code : error instanceof ExecServerError ? error.rpcCode : null;
    return (
      number === rpcCode && (message === undefined || (error instanceof Error && error.message === message))
    );
  };
}
