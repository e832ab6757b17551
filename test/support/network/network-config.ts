import type { NetworkPolicy } from "../../../src/protocol/network/network-schemas.ts";

/** A network policy as the Codex client sends it, with changes. */
export function policy(changes: Partial<NetworkPolicy>): NetworkPolicy {
  return {
    enabled: true,
    enableSocks5: true,
    enableSocks5Udp: true,
    allowUpstreamProxy: false,
    dangerouslyAllowAllUnixSockets: false,
    mode: "full",
    allowLocalBinding: false,
    ...changes,
  };
}
