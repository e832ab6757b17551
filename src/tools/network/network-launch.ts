import type { NetworkPolicy, NetworkProxyConfig } from "../../protocol/network/network-schemas.ts";
import { allowedPatterns, type ManagedNetwork } from "./network-rules.ts";

/** Maximum time for the answer of a user to a network question. Afterwards the proxy denies the request. */
export const NETWORK_ANSWER_TIMEOUT_MS = 5 * 60_000;

/** Converts the rules of a managed network to the `networkProxy` of a start. */
export function toNetworkProxy(network: ManagedNetwork): NetworkProxyConfig {
  const { layers } = network;
  const denied = layers.flatMap(({ deny }) => deny);
  const reviewed = layers.flatMap(({ ask }) => ask);
  const asks = reviewed.length > 0 || layers.some(({ fallback }) => fallback === "ask");
  const proxy: NetworkPolicy = {
    enabled: true,
    enableSocks5: true,
    enableSocks5Udp: false,
    allowUpstreamProxy: true,
    dangerouslyAllowAllUnixSockets: false,
    mode: "full",
    // A deny entry replaces an allow entry of the same pattern.
    domains: Object.fromEntries([
      ...allowedPatterns(network).map((pattern) => [pattern, "allow"] as const),
      ...denied.map((pattern) => [pattern, "deny"] as const),
    ]),
    reviewDomains: reviewed.length > 0 ? [...new Set(reviewed)] : undefined,
    allowLocalBinding: false,
    ports: common(layers.map(({ ports }) => ports)),
    methods: common(layers.map(({ methods }) => methods)),
  };
  // Without a question, the proxy denies a miss itself.
  return { proxy, policyDecisionTimeoutMs: asks ? NETWORK_ANSWER_TIMEOUT_MS : undefined };
}

/** Returns the entries of all lists, or undefined if there is no list. An empty result allows nothing. */
function common<T>(given: readonly (readonly T[] | null | undefined)[]): T[] | undefined {
  const [first, ...rest] = given.flatMap((list) => (list ? [list] : []));
  return first && [...new Set(first)].filter((entry) => rest.every((list) => list.includes(entry)));
}
