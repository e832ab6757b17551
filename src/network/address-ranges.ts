import { BlockList, isIP } from "node:net";
import { expandIpv6 } from "../base/ip-address.ts";

/** Address ranges that are not public, as the network policy treats them. */

const V4_RANGES: readonly [network: string, prefix: number][] = [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 4],
  ["240.0.0.0", 4],
];
const V6_RANGES: readonly [network: string, prefix: number][] = [
  ["::", 128],
  ["::1", 128],
  ["64:ff9b:1::", 48],
  ["fc00::", 7],
  ["fe80::", 10],
  ["fec0::", 10],
  ["ff00::", 8],
];

const nonPublic = new BlockList();
for (const [network, prefix] of V4_RANGES) nonPublic.addSubnet(network, prefix, "ipv4");
for (const [network, prefix] of V6_RANGES) nonPublic.addSubnet(network, prefix, "ipv6");

/** Returns true for an address outside of the public internet, and for text that is not an IP address. */
export function isNonPublicAddress(text: string): boolean {
  const address = withoutZone(text);
  const version = isIP(address);
  if (version === 0) return true;
  if (version === 4) return nonPublic.check(address, "ipv4");
  if (nonPublic.check(address, "ipv6")) return true;
  const embedded = embeddedIpv4(address);
  return embedded !== null && nonPublic.check(embedded, "ipv4");
}

/** Returns true for a loopback address, and for the unspecified address, which connects to loopback. */
export function isLoopbackAddress(text: string): boolean {
  const address = withoutZone(text);
  const version = isIP(address);
  const v4 = version === 4 ? address : version === 6 ? embeddedIpv4(address) : null;
  if (v4 !== null && (v4.startsWith("127.") || v4.startsWith("0."))) return true;
  return version === 6 && expandIpv6(address).slice(0, 7).every(isZero) && expandIpv6(address)[7] === 1;
}

/** Returns the IPv4 address within a mapped, compatible, NAT64 or 6to4 address; null for other IPv6 addresses. */
function embeddedIpv4(address: string): string | null {
  const groups = expandIpv6(address);
  const [g0, g1, g2, g3, g4, g5 = 0, g6 = 0, g7 = 0] = groups;
  const startsZero = groups.slice(0, 5).every(isZero);
  if (startsZero && (g5 === 0xffff || g5 === 0)) return toIpv4(g6, g7);
  if (g0 === 0x64 && g1 === 0xff9b && [g2, g3, g4, g5].every((group) => group === 0)) return toIpv4(g6, g7);
  return g0 === 0x2002 ? toIpv4(g1 ?? 0, g2 ?? 0) : null;
}

function toIpv4(high: number, low: number): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}

const isZero = (group: number) => group === 0;

function withoutZone(address: string): string {
  return address.replace(/%.*$/s, "");
}
