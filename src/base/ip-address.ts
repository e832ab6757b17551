/** Returns the version of an IP address (4 or 6), or 0 for other text. Like `isIP`, but does not load node:net. */
export function ipVersion(text: string): 0 | 4 | 6 {
  if (V4.test(text)) return 4;
  // A link-local address may end with `%` and its interface.
  const address = text.replace(/%[\da-zA-Z.:-]+$/, "");
  return V6_LETTERS.test(address) && URL.canParse(`http://[${address}]`) ? 6 : 0;
}

/** Returns the host of a URL, or of an address with a port: an IPv6 address is in brackets. */
export function bracketHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

/** Returns the eight groups of an IPv6 address without a zone. Throws for other text. */
export function expandIpv6(address: string): number[] {
  // `URL` returns hexadecimal groups with at most one `::`.
  const short = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [before = [], after = []] = short
    .split("::")
    .map((half) => (half === "" ? [] : half.split(":").map((group) => Number.parseInt(group, 16))));
  return [...before, ...Array<number>(Math.max(0, 8 - before.length - after.length)).fill(0), ...after];
}

const V4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;
const V6_LETTERS = /^[\da-fA-F:.]+$/;
