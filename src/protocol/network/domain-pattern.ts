import { ipVersion } from "../../base/ip-address.ts";

/**
 * Domain patterns of a network policy: `example.com` (this host only), `*.example.com` (sub-domains at any depth),
 * `**.example.com` (the same and `example.com`), `*` (every host) and IP addresses.
 */

/** Maximum length of a host name in DNS. */
const MAX_HOST_LENGTH = 253;
const LABEL = /^(?!-)[a-z\d_-]{1,63}(?<!-)$/;

/**
 * Returns a host as policies compare it: lower case, without brackets, port and trailing dots; IPv6 in its short form, and an
 * IPv4-mapped address as the IPv4 address to which it connects.
 */
export function normalizeHost(text: string): string {
  const host = text.trim().toLowerCase();
  const bracketed = /^\[([^\]]*)\](?::\d*)?$/.exec(host)?.[1];
  // More than one colon is an IPv6 address without brackets.
  const name = bracketed ?? host.replace(/^([^:]*):\d*$/, "$1");
  const withoutDots = name.replace(/\.+$/, "");
  return ipVersion(withoutDots) === 6 ? shortIpv6(withoutDots) : withoutDots;
}

function shortIpv6(address: string): string {
  // An interface suffix (`%eth0`) is not valid in a URL, so such an address stays as it is.
  const short = URL.parse(`http://[${address}]`)?.hostname.slice(1, -1) ?? address;
  const [, high, low] = /^::ffff:([\da-f]+):([\da-f]+)$/.exec(short) ?? [];
  if (high === undefined || low === undefined) return short;
  return [high, low].flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 255]).join(".");
}

/** Parses a pattern that a user wrote. Throws an error that names the remedy; the caller adds the field. */
export function parseDomainPattern(text: string): string {
  const fail = (problem: string): never => {
    throw new Error(`\`${text}\` ${problem}`);
  };
  const written = text.trim();
  if (written === "") return fail("is empty; give a domain such as example.com");
  if (written.includes("/")) return fail("is not a domain; give the host alone, without scheme and path");
  const [, wildcard = "", rest = ""] = /^(\*\*?\.)?(.*)$/s.exec(written) ?? [];
  if (rest === "*" && wildcard === "") return "*";
  if (rest.includes("*")) return fail("has `*` inside; use *.example.com, **.example.com or *");
  if (/^(?:\[.*\]|[^:]*):\d*$/.test(rest)) return fail("has a port; list ports separately");
  const host = normalizeHost(rest);
  if (ipVersion(host) > 0) return wildcard === "" ? host : fail("has a wildcard before an IP address");
  const name = toAscii(host);
  const labels = name.split(".");
  if (name.length > MAX_HOST_LENGTH || !labels.every((label) => LABEL.test(label)))
    return fail("is not a domain; give one such as example.com or *.example.com");
  // A resolver would read such a name as an IPv4 address.
  if (/^(?:\d+|0x[\da-f]*)$/.test(labels.at(-1) ?? "")) return fail("is neither a domain nor a complete IP address");
  return `${wildcard}${name}`;
}

/** Converts an internationalized name to its ASCII form, in which clients request it. */
function toAscii(name: string): string {
  return /^[\0-\x7f]*$/.test(name) ? name : (URL.parse(`http://${name}`)?.hostname ?? name);
}

/** Reports whether a normalized host matches a normalized pattern. */
export function matchesDomain(pattern: string, host: string): boolean {
  if (pattern === "*" || pattern === host) return true;
  const suffix = wildcardSuffix(pattern);
  // Parts of an IP address are not sub-domains.
  if (suffix === null || ipVersion(host) > 0) return false;
  return host.endsWith(`.${suffix}`) || (pattern.startsWith("**.") && host === suffix);
}

/** Returns the pattern for exactly the hosts that match both patterns, or null if there are none. */
export function intersectDomains(a: string, b: string): string | null {
  if (a === b) return a;
  // `*` never covers local addresses, but a literal pattern does: the intersection would allow more than `*`.
  if (a === "*") return isLiteral(b) ? null : b;
  if (b === "*") return isLiteral(a) ? null : a;
  if (covers(a, b)) return b;
  return covers(b, a) ? a : null;
}

function isLiteral(pattern: string): boolean {
  return pattern === "localhost" || ipVersion(pattern) > 0;
}

/** Reports whether every host of pattern `b` matches pattern `a`. Neither is `*`. */
function covers(a: string, b: string): boolean {
  const inner = wildcardSuffix(b);
  if (inner === null) return matchesDomain(a, b);
  const outer = wildcardSuffix(a);
  if (outer === null) return false;
  if (inner.endsWith(`.${outer}`)) return true;
  return inner === outer && (a.startsWith("**.") || !b.startsWith("**."));
}

/** Returns the domain below which a wildcard pattern matches, or null for other patterns. */
function wildcardSuffix(pattern: string): string | null {
  return /^\*\*?\.(.*)$/s.exec(pattern)?.[1] ?? null;
}
