import { type ForwardAddress, formatAddress } from "./forward-address.ts";

/** The rule for the loopback addresses. */
export const LOOPBACK_RULE = "loopback";

/** The rule for every address and Unix socket that the server reaches. */
export const ANY_RULE = "any";

/**
 * Where clients of a server may connect and listen: null for nowhere, otherwise `loopback`, `any`, `HOST:PORT`, `HOST:*` or the
 * path of a Unix socket. Names and paths are compared as written and not resolved, so a listed name is trusted to resolve to
 * the right address.
 */
export type ForwardRules = readonly string[] | null;

/** Returns null if the address is allowed, otherwise the error text. Null as address asks whether any address is allowed. */
export function forwardDenialReason(rules: ForwardRules, address: ForwardAddress | null): string | null {
  if (rules === null) return "forwarding is off at this server; start it with `--allow-forward` to allow it";
  if (address === null || rules.includes(ANY_RULE)) return null;
  const shown = formatAddress(address).toLowerCase();
  const denial = (rule: string) =>
    `forwarding to \`${rule}\` is not allowed; start the server with \`--allow-forward ${rule}\` to allow it`;
  if ("path" in address) return rules.includes(address.path) ? null : denial(address.path);
  if (rules.includes(LOOPBACK_RULE) && isLoopbackHost(address.host)) return null;
  return [shown, shown.replace(/\d+$/, "*")].some((rule) => rules.includes(rule)) ? null : denial(shown);
}

/** Accepts loopback addresses and `localhost`, which needs no lookup. */
export function isLoopbackHost(host: string): boolean {
  const name = host.toLowerCase();
  return name === "localhost" || name === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

/** Returns the normalized rule; null if the text is not a rule. */
export function parseForwardRule(text: string): string | null {
  if (text === LOOPBACK_RULE || text === ANY_RULE || /^\/[^\0]+$/.test(text)) return text;
  const [, host, port] = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\]/]+):(\d{1,5}|\*)$/.exec(text) ?? [];
  if (host === undefined || port === undefined || (port !== "*" && Number(port) > 65_535)) return null;
  return `${host.toLowerCase()}:${port}`;
}
