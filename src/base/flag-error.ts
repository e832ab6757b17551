import { errorMessage } from "./error-message.ts";

/** A command-line flag with an unusable value. The CLI exits with code 2, as for unknown flags. */
export class FlagError extends Error {
  override readonly name = "FlagError";

  constructor(flag: string, value: string, cause: unknown) {
    super(`${flag} ${value}: ${errorMessage(cause)}`, { cause });
  }
}
