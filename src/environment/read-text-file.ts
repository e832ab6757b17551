import { isUtf8 } from "node:buffer";
import { errnoName } from "../files/os-error.ts";
import { readFile } from "../files/read-write.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";
import { uriFromPath } from "../protocol/path-uri.ts";

/** No configuration, manifest or instruction file is larger than this. */
export const MAX_TEXT_FILE_BYTES = 1024 * 1024;

/** A small text file's content, or null when there is none at the path. Anything else in its place is an error. */
export async function readTextFile(path: string): Promise<string | null> {
  try {
    const { data } = await readFile({ path: uriFromPath(path) }, { maxBytes: MAX_TEXT_FILE_BYTES });
    if (!isUtf8(data)) throw new NotText();
    return Buffer.from(data).toString("utf8");
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

export class NotText extends Error {
  constructor() {
    super("is not UTF-8");
  }
}

function isMissing(error: unknown): boolean {
  if (!(error instanceof RequestError)) return false;
  return error.code === ErrorCode.notFound || errnoName(error.cause) === "ENOTDIR";
}
