/** Codex's texts of network denials. A reason is a code of the proxy or a text. No other module compares such a text. */

import { printableLine } from "../../base/text/printable-text.ts";
import { formatTarget, type NetworkTarget } from "./network-target.ts";

/** Reason of a denial by the user. */
// prose-ok: all -- Codex text
export const REJECTED_BY_USER = "rejected by user";

const SCHEMES: Record<NetworkTarget["protocol"], string> = {
  http: "http",
  https_connect: "https",
  socks5_tcp: "socks5-tcp",
  socks5_udp: "socks5-udp",
};

/** Text of a denial without a user who could decide. */
export function blockedByPolicy(target: NetworkTarget): string {
  // prose-ok: all -- Codex text
  return `Network access to "${SCHEMES[target.protocol]}://${formatTarget(target)}" was blocked by policy.`;
}

/** Short words for the reasons of the proxy. Other reasons are texts already. */
const REASON_WORDS: Readonly<Record<string, string>> = {
  not_allowed: "not allowed",
  denied: "denied",
  not_allowed_local: "local or private address",
  method_not_allowed: "method not allowed",
  mitm_required: "tunnel not allowed",
  policy_denied: "denied by policy",
};

/** Explanations of Codex for the reasons of the proxy. */
const REASON_TEXTS: Readonly<Record<string, string>> = {
  // prose-ok: all -- Codex texts
  not_allowed: "domain is not on the allowlist for the current sandbox mode.",
  denied: "domain is explicitly denied by policy and cannot be approved from this prompt.",
  not_allowed_local: "local/private network addresses are blocked by the sandbox policy.",
  method_not_allowed: "request method is blocked by the current network mode.",
  mitm_required: "request method is blocked by the current network mode.",
};

export function reasonWords(reason: string): string {
  return REASON_WORDS[reason] ?? printableLine(reason);
}

/** Explains a denial to a model, with host and reason. */
export function explainDenial(target: NetworkTarget, reason: string): string {
  if (reason === blockedByPolicy(target)) return reason;
  return `Network access to "${printableLine(target.host)}" was blocked: ${REASON_TEXTS[reason] ?? printableLine(reason)}`;
}
