import { isIP } from "node:net";
import { invalidParams } from "../protocol/errors.ts";
import { matchesDomain, normalizeHost } from "../protocol/network/domain-pattern.ts";
import type { NetworkPolicy, NetworkProxyConfig } from "../protocol/network/network-schemas.ts";
import { isNonPublicAddress } from "./address-ranges.ts";

/** Longest host in bytes. */
const MAX_HOST_BYTES = 253;
const MAX_PROCESS_ID_BYTES = 256;

/** Result of the checks that need no lookup. `ask`: neither allowed nor denied. */
export type HostRule = "allowed" | "ask" | "denied" | "not_allowed_local";

/** The host patterns of one network policy. */
export class HostPolicy {
  readonly #allow: readonly string[];
  readonly #deny: readonly string[];
  readonly #review: readonly string[];
  readonly #allowLocalBinding: boolean;

  constructor({ domains = {}, reviewDomains = [], allowLocalBinding }: NetworkPolicy) {
    const withPermission = (wanted: string) =>
      Object.entries(domains).flatMap(([pattern, permission]) =>
        permission === wanted ? normalizePattern(pattern) : [],
      );
    this.#allow = withPermission("allow");
    this.#deny = withPermission("deny");
    this.#review = reviewDomains.map(normalizePattern);
    this.#allowLocalBinding = allowLocalBinding;
  }

  /** Checks a canonical host. Deny patterns win, then local addresses, then review patterns. */
  check(host: string): HostRule {
    const matches = (patterns: readonly string[]) => patterns.some((pattern) => matchesDomain(pattern, host));
    if (matches(this.#deny)) return "denied";
    if (!this.#allowLocalBinding && isLocalHost(host) && !this.#allow.includes(host)) return "not_allowed_local";
    return matches(this.#allow) && !matches(this.#review) ? "allowed" : "ask";
  }
}

/** Returns the host as policies compare it, or null if no request may name it. */
export function canonicalHost(text: string): string | null {
  const host = normalizeHost(text);
  // Resolvers map other characters than ASCII, for example a soft hyphen to nothing: such a name would evade `deny`.
  if (host === "" || host.length > MAX_HOST_BYTES || /[^!-~]|[/\\?#@%"'<>[\]]/.test(host)) return null;
  if (isIP(host) > 0) return host;
  if (host.includes(":")) return null;
  // Resolvers read `127.1` and `0x7f000001` as IPv4 addresses.
  const lastLabel = host.slice(host.lastIndexOf(".") + 1);
  if (/^(?:\d+|0x[\da-f]*)$/.test(lastLabel)) {
    const address = URL.parse(`http://${host}/`)?.hostname ?? "";
    return isIP(address) === 4 ? address : null;
  }
  return host;
}

function isLocalHost(host: string): boolean {
  return host === "localhost" || (isIP(host) > 0 && isNonPublicAddress(host));
}

function normalizePattern(pattern: string): string {
  const trimmed = pattern.trim();
  const [, wildcard = "", rest = ""] = /^(\*\*?\.)?(.*)$/s.exec(trimmed) ?? [];
  return `${wildcard}${normalizeHost(rest)}`;
}

/** Throws the errors of Codex for a config that no proxy can serve. */
export function requireValidConfig(config: NetworkProxyConfig, processId: string): void {
  const { proxy, policyDecisionTimeoutMs } = config;
  const reject = (message: string) => {
    throw invalidParams(message);
  };
  if (policyDecisionTimeoutMs === 0) reject("network policy decision callback timeout must be nonzero");
  const idBytes = Buffer.byteLength(processId);
  if (policyDecisionTimeoutMs !== undefined && (idBytes === 0 || idBytes > MAX_PROCESS_ID_BYTES))
    reject("callback-enabled process ID must be non-empty and at most 256 bytes");
  if (!proxy.enabled)
    reject("invalid network proxy config: executor-local network proxy launch requires an enabled proxy");
  for (const [pattern, permission] of Object.entries(proxy.domains ?? {})) {
    if (permission === "deny" && normalizePattern(pattern) === "*")
      reject(
        "invalid network proxy config: invalid value for network.denied_domains: * (allowed exact hosts or scoped wildcards like *.example.com or **.example.com)",
      );
  }
  if (proxy.credentialMasking)
    reject("networkProxy.proxy.credentialMasking is not supported by this server; send false");
}
