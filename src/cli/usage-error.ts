/** Bad arguments: told in one line, with the way to the command's help, exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
