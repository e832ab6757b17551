import { bracketHost } from "../base/ip-address.ts";

/** A TCP address or a Unix socket. */
export type ForwardAddress = { host: string; port: number } | { path: string };

/** Returns the address as users write it: `HOST:PORT`, `[::1]:PORT` or `/PATH`. */
export function formatAddress(address: ForwardAddress): string {
  if ("path" in address) return address.path;
  return `${bracketHost(address.host)}:${address.port}`;
}
