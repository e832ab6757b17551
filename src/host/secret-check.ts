import { FlagError } from "../base/flag-error.ts";
import type { ExposedSecret } from "../sandbox/secret-directory.ts";
import { maskedDirectories } from "./local-sandbox.ts";

/**
 * Returns the secrets that a sandboxed command could read after their replacement. Sandboxed starts are rejected then.
 * Returns none if no sandbox works on this host. `own` lists further files of this process.
 */
export async function exposedSecrets(secrets: readonly string[], own: readonly string[]): Promise<ExposedSecret[]> {
  if (secrets.length === 0) return [];
  const { isBubblewrapInstalled, sandboxPrograms } = await import("../sandbox/sandbox-probe.ts");
  if (!isBubblewrapInstalled()) return [];
  const { findExposedSecrets } = await import("../sandbox/secret-directory.ts");
  const exposed = findExposedSecrets(secrets, own, maskedDirectories());
  // The probe runs a process, so it runs last.
  return exposed.length > 0 && sandboxPrograms() !== null ? exposed : [];
}

/** Throws a FlagError that names the flag of the first exposed secret. `flags` is keyed by path. */
export function rejectExposed(
  [first]: readonly ExposedSecret[],
  flags: Readonly<Record<string, string>>,
  remedy: string,
): void {
  if (first) throw new FlagError(flags[first.path] ?? "secret file", first.path, `${first.exposure}; or ${remedy}`);
}
