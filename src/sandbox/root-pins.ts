import { cannotEnforce } from "./sandbox-intent.ts";

/** Where each named root leads, for everything that is started in one scope, such as a session. */
const scopes = new WeakMap<object, Map<string, string>>();

/**
 * A root leads where it led when its scope first named it. Whoever is behind the walls of a first command can swap a folder
 * he may write to for a link: the walls of the second must not follow it.
 */
export function pinRoot(scope: object | undefined, name: string, real: string): void {
  if (!scope) return;
  let pins = scopes.get(scope);
  if (!pins) {
    pins = new Map();
    scopes.set(scope, pins);
  }
  const pinned = pins.get(name);
  if (pinned === undefined) pins.set(name, real);
  else if (pinned !== real)
    throw cannotEnforce({
      reason: `\`${name}\` leads to \`${real}\`, and led to \`${pinned}\` when it was first used here`,
    });
}
