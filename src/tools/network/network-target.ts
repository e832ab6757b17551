import { bracketHost } from "../../base/ip-address.ts";
import { printableLine } from "../../base/text/printable-text.ts";

/** A destination of a command, as texts for users and models name it. */
export interface NetworkTarget {
  host: string;
  port: number;
  protocol: "http" | "https_connect" | "socks5_tcp" | "socks5_udp";
}

/** Formats `HOST:PORT`, with brackets around an IPv6 address. */
export function formatTarget({ host, port }: Pick<NetworkTarget, "host" | "port">): string {
  return `${bracketHost(printableLine(host))}:${port}`;
}
