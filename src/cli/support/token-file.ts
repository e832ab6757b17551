import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openRuntimeDirectory, runtimeDirectoryPath } from "../../host/runtime-directory.ts";

/** Returns the path of the token file of this process, in the runtime directory of the user. */
export function tokenFilePath(): string {
  return join(runtimeDirectoryPath(), `start-${process.pid}.token`);
}

/** Writes a token to a file that only this user can read. The file is removed when this process exits. */
export function writeTokenFile(path: string, token: string): void {
  openRuntimeDirectory((message) => process.stderr.write(`${message}\n`));
  // A file of a killed server that had the same process id.
  rmSync(path, { force: true });
  writeFileSync(path, `${token}\n`, { mode: 0o600, flag: "wx" });
  process.once("exit", () => rmSync(path, { force: true }));
}
