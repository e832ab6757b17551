/** Stands for this machine's own addresses in the rules. */
export const LOOPBACK = "loopback";

/**
 * Where a server lets its clients connect and listen: null nowhere, else `loopback`, `HOST:PORT` or `HOST:*`. A name is
 * compared as it was written and not resolved, so a listed name is trusted to resolve to the right address.
 */
export type ForwardRules = readonly string[] | null;

/** Null when it is allowed, else the error text. */
export function whyNotForwarded(rules: ForwardRules, host: string, port: number): string | null {
  if (rules === null) return "forwarding is off at this server; start it with `--allow-forward` to allow it";
  if (rules.includes(LOOPBACK) && isLoopback(host)) return null;
  const name = host.toLowerCase();
  const shown = host.includes(":") ? `[${name}]` : name;
  if ([`${shown}:${port}`, `${shown}:*`].some((rule) => rules.includes(rule))) return null;
  return `forwarding to \`${shown}:${port}\` is not allowed; start the server with \`--allow-forward ${shown}:${port}\` to allow it`;
}

/** Loopback addresses, and the one name for them that needs no lookup. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  return name === "localhost" || name === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

/** The rule in its normal form; null when the text is not a rule. */
export function parseForwardRule(text: string): string | null {
  if (text === LOOPBACK) return text;
  const [, host, port] = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\]/]+):(\d{1,5}|\*)$/.exec(text) ?? [];
  if (host === undefined || port === undefined || (port !== "*" && Number(port) > 65_535)) return null;
  return `${host.toLowerCase()}:${port}`;
}
