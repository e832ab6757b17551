import { statSync } from "node:fs";
import { cannotEnforce } from "./sandbox-request.ts";

/** What was found at first, for everything that is started in one scope, such as a session. */
const scopes = new WeakMap<object, Map<string, string>>();

/**
 * A root leads where it led when its scope first named it. A first command behind walls can swap a folder that it may write to
 * for a link: the walls of a second command must not follow it.
 */
export function pinRoot(scope: object | undefined, name: string, real: string): void {
  const pinned = pin(scope, `root ${name}`, real);
  if (pinned !== real)
    throw cannotEnforce({
      reason: `\`${name}\` leads to \`${real}\`, and led to \`${pinned}\` when it was first used here`,
    });
}

/**
 * The folder around a protected place stays the folder it was. A mount keeps the place itself from being moved, but not what
 * is above it: the protected file would be elsewhere, and the next walls would cover nothing.
 */
export function pinFolder(scope: object | undefined, path: string): void {
  const identity = folderIdentity(path);
  if (pin(scope, `folder ${path}`, identity) !== identity)
    throw cannotEnforce({
      reason: `the folder \`${path}\`, which holds what is protected, was moved or replaced since it was first used here`,
    });
}

/** Tells a folder from every other one, whatever it is called. */
export function folderIdentity(path: string): string {
  const found = statSync(path, { throwIfNoEntry: false });
  return found ? `${found.dev}:${found.ino}` : "missing";
}

function pin(scope: object | undefined, key: string, value: string): string {
  if (!scope) return value;
  let pins = scopes.get(scope);
  if (!pins) {
    pins = new Map();
    scopes.set(scope, pins);
  }
  const pinned = pins.get(key);
  if (pinned !== undefined) return pinned;
  pins.set(key, value);
  return value;
}
