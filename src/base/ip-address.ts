/** Returns the version of an IP address (4 or 6), or 0 for other text. Like `isIP`, but does not load node:net. */
export function ipVersion(text: string): 0 | 4 | 6 {
  if (V4.test(text)) return 4;
  // A link-local address may end with `%` and its interface.
  const address = text.replace(/%[\da-zA-Z.:-]+$/, "");
  return V6_LETTERS.test(address) && URL.canParse(`http://[${address}]`) ? 6 : 0;
}

const V4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;
const V6_LETTERS = /^[\da-fA-F:.]+$/;
