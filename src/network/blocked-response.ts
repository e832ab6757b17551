import type { NetworkRequest } from "../protocol/network/network-schemas.ts";
import type { Blocked } from "./request-judge.ts";

/** Texts of Codex for blocked requests. */

const ERRORS: Readonly<Record<string, [header: string, message: string]>> = {
  not_allowed: ["blocked-by-allowlist", "Domain not in allowlist."],
  not_allowed_local: ["blocked-by-allowlist", "Sandbox policy blocks local/private network addresses."],
  denied: ["blocked-by-denylist", "Domain denied by the sandbox policy."],
  method_not_allowed: ["blocked-by-method-policy", "Method not allowed in limited mode."],
  mitm_required: ["blocked-by-mitm-required", "MITM required for limited HTTPS."],
};

/** Status 403 for a blocked request: JSON for plain HTTP, the message alone for CONNECT. */
export function blockedResponse(
  { host, port, reason, decision, source }: Blocked,
  protocol: NetworkRequest["protocol"],
): { headers: Record<string, string>; body: string } {
  const [error, message] = ERRORS[reason] ?? ["blocked-by-policy", "Request blocked by network policy."];
  const isJson = protocol === "http";
  const body = isJson
    ? JSON.stringify({ status: "blocked", host, reason, decision, source, protocol, port, message })
    : message;
  return { headers: { "content-type": isJson ? "application/json" : "text/plain", "x-proxy-error": error }, body };
}
