import { statSync } from "node:fs";
import { unenforceableSandbox } from "./sandbox-request.ts";

/** The first resolution of each path, per scope. A scope is for example a session. */
const scopes = new WeakMap<object, Map<string, string>>();

/**
 * Pins a root to the path it first resolved to in its scope. A sandboxed command can replace a writable directory by a
 * link; the sandbox of the next command must not follow it.
 */
export function pinRoot(scope: object | undefined, name: string, real: string): void {
  const pinned = pin(scope, `root ${name}`, real);
  if (pinned !== real)
    throw unenforceableSandbox({
      reason: `\`${name}\` resolves to \`${real}\`; it resolved to \`${pinned}\` at its first use`,
    });
}

/**
 * Pins the directory around a protected path. A mount prevents moving the path itself but not its parent directories. If one
 * were moved, the protected file would be elsewhere and the next sandbox would cover nothing.
 */
export function pinDirectory(scope: object | undefined, path: string): void {
  const key = `directory ${path}`;
  const identity = directoryIdentity(path);
  const pinned = identity === null ? ((scope && scopes.get(scope)?.get(key)) ?? null) : pin(scope, key, identity);
  if (pinned !== identity)
    throw unenforceableSandbox({
      reason: `directory \`${path}\`, which contains a protected path, was moved or replaced since its first use`,
    });
}

/** Returns all pins of a scope, for the next server. */
export function pinsOf(scope: object | undefined): { key: string; value: string }[] {
  const pins = scope && scopes.get(scope);
  return pins ? [...pins].map(([key, value]) => ({ key, value })) : [];
}

/** Restores pins that an earlier server recorded. */
export function restorePins(scope: object, pins: readonly { key: string; value: string }[]): void {
  for (const { key, value } of pins) pin(scope, key, value);
}

/** Returns `device:inode`, which identifies a directory under any path; null if there is none. */
export function directoryIdentity(path: string): string | null {
  const found = statSync(path, { throwIfNoEntry: false });
  return found ? `${found.dev}:${found.ino}` : null;
}

function pin(scope: object | undefined, key: string, value: string): string {
  if (!scope) return value;
  const pins = scopes.get(scope) ?? new Map<string, string>();
  scopes.set(scope, pins);
  const pinned = pins.get(key) ?? value;
  pins.set(key, pinned);
  return pinned;
}
