/**
 * Returns a copy without undefined members, so that results show only present members. The argument is an object
 * literal, so that the compiler still rejects undeclared members.
 *
 * @example
 * return omitUndefined<WaitResult>({ reason, match });
 */
export function omitUndefined<T extends object>(members: T): T {
  const present: Partial<T> = {};
  for (const key in members) if (members[key] !== undefined) present[key] = members[key];
  // Only optional members can be undefined.
  return present as T;
}
