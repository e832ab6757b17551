/** Key in the session storage: a tab drives its process again after a reload; other tabs do not. */
const STORAGE_KEY = "procwire.driven";

/** Remembers that this tab drives a process, or that it drives none. */
export function rememberDriven(handle: string | null): void {
  if (handle === null) sessionStorage.removeItem(STORAGE_KEY);
  else sessionStorage.setItem(STORAGE_KEY, handle);
}

/** Reports whether this tab has started the process or was its driver before a reload. */
export function isDriven(handle: string): boolean {
  return sessionStorage.getItem(STORAGE_KEY) === handle;
}
