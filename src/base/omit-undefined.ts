/**
 * The same without members that are undefined, for what is handed out: whoever looks at a result finds what there is.
 * The members are a plain literal, so the compiler still refuses one that nobody declared.
 *
 * @example
 * return defined<WaitResult>({ reason, match });
 */
export function defined<T extends object>(members: T): T {
  const all = { ...members };
  for (const key in all) if (all[key] === undefined) Reflect.deleteProperty(all, key);
  return all;
}
