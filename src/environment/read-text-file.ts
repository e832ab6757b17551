import { isUtf8 } from "node:buffer";
import { errnoNameOf } from "../files/os-error.ts";
import { readFile } from "../files/read-write.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";
import { uriFromPath } from "../protocol/path-uri.ts";

/** Configuration, manifest and instruction files are smaller than this. */
export const MAX_TEXT_FILE_BYTES = 1024 * 1024;

/** Returns the content of a small text file; null if the path is missing. Throws for any other kind of file. */
export async function readTextFile(path: string): Promise<string | null> {
  try {
    const { data } = await readFile({ path: uriFromPath(path) }, { maxBytes: MAX_TEXT_FILE_BYTES });
    if (!isUtf8(data)) throw new NotTextError();
    return Buffer.from(data).toString("utf8");
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

export class NotTextError extends Error {
  constructor() {
    super("is not UTF-8");
  }
}

function isMissing(error: unknown): boolean {
  if (!(error instanceof RequestError)) return false;
  return error.code === ErrorCode.notFound || errnoNameOf(error.cause) === "ENOTDIR";
}
