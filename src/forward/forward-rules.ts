/** The rule for the loopback addresses. */
export const LOOPBACK_RULE = "loopback";

/**
 * Where clients of a server may connect and listen: null for nowhere, otherwise `loopback`, `HOST:PORT` or `HOST:*`. Names are
 * compared as written and not resolved, so a listed name is trusted to resolve to the right address.
 */
export type ForwardRules = readonly string[] | null;

/** Returns null if the target is allowed, otherwise the error text. */
export function forwardDenialReason(rules: ForwardRules, host: string, port: number): string | null {
  if (rules === null) return "forwarding is off at this server; start it with `--allow-forward` to allow it";
  if (rules.includes(LOOPBACK_RULE) && isLoopbackHost(host)) return null;
  const name = host.toLowerCase();
  const shown = host.includes(":") ? `[${name}]` : name;
  if ([`${shown}:${port}`, `${shown}:*`].some((rule) => rules.includes(rule))) return null;
  return `forwarding to \`${shown}:${port}\` is not allowed; start the server with \`--allow-forward ${shown}:${port}\` to allow it`;
}

/** Accepts loopback addresses and `localhost`, which needs no lookup. */
export function isLoopbackHost(host: string): boolean {
  const name = host.toLowerCase();
  return name === "localhost" || name === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

/** Returns the normalized rule; null if the text is not a rule. */
export function parseForwardRule(text: string): string | null {
  if (text === LOOPBACK_RULE) return text;
  const [, host, port] = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\]/]+):(\d{1,5}|\*)$/.exec(text) ?? [];
  if (host === undefined || port === undefined || (port !== "*" && Number(port) > 65_535)) return null;
  return `${host.toLowerCase()}:${port}`;
}
