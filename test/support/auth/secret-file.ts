import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Returns the path of a secret file in a separate directory, as a server that offers sandboxes requires. */
export function secretPath(directory: string, name: string): string {
  const own = join(directory, `${name}.secret`);
  mkdirSync(own, { recursive: true, mode: 0o700 });
  return join(own, name);
}

/** Writes a secret file in a separate directory, and returns its path. */
export function writeSecret(directory: string, name: string, content: string | Buffer): string {
  const path = secretPath(directory, name);
  writeFileSync(path, content, { mode: 0o600 });
  return path;
}
