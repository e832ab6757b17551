import { networkInterfaces } from "node:os";
import { bracketHost } from "../../base/ip-address.ts";
import type { ExecServerTransport } from "./listen-url.ts";

/** Loopback addresses for the addresses that mean all network interfaces. Browsers cannot open the latter. */
const LOOPBACK = new Map([
  ["0.0.0.0", "127.0.0.1"],
  ["[::]", "[::1]"],
]);

/** Returns a URL that a browser on this host can open. */
export function localBrowserUrl(url: string): string {
  const { hostname } = new URL(url);
  return withHost(url, LOOPBACK.get(hostname) ?? hostname);
}

/** Returns an HTTP URL with another host, in the form of a URL: IPv6 in brackets. */
export function withHost(url: string, host: string): string {
  const changed = new URL(url);
  changed.hostname = host;
  return changed.origin;
}

type Interfaces = ReturnType<typeof networkInterfaces>;

/**
 * Returns the host by which browsers of other hosts reach a server on all network interfaces: an allowed name, or the
 * address of a network interface. Null for a server on one address, and without such an interface.
 */
export function hostForOthers(
  transport: ExecServerTransport,
  allowHosts: readonly string[] = [],
  interfaces: Interfaces = networkInterfaces(),
): string | null {
  if (transport.type !== "websocket" || !["0.0.0.0", "::"].includes(transport.host)) return null;
  const [name] = allowHosts;
  if (name !== undefined) return name;
  const family = transport.host === "::" ? "IPv6" : "IPv4";
  const addresses = Object.values(interfaces)
    .flatMap((list) => list ?? [])
    // A link-local address needs the name of an interface, which differs on other hosts.
    .filter((one) => !one.internal && !one.address.startsWith("fe80:"));
  // A server on `::` accepts IPv4 too.
  const found = addresses.find((one) => one.family === family) ?? (family === "IPv6" ? addresses[0] : undefined);
  if (found === undefined) return null;
  return bracketHost(found.address);
}
