import { RequestError } from "../protocol/errors.ts";

/** The server has no process of this id. A server that replaced another one says that, and its generation, behind it. */
export function isUnknown(error: unknown, processId: string): boolean {
  if (!(error instanceof RequestError)) return false;
  const text = `unknown process id ${processId}`;
  return error.message === text || error.message.startsWith(`${text}; `);
}
