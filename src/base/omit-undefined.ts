/**
 * Returns a copy without undefined members, so that results show only present members. The argument is an object
 * literal, so that the compiler still rejects undeclared members.
 *
 * @example
 * return omitUndefined<WaitResult>({ reason, match });
 */
export function omitUndefined<T extends object>(members: T): T {
  const all = { ...members };
  for (const key in all) if (all[key] === undefined) Reflect.deleteProperty(all, key);
  return all;
}
