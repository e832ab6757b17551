import { isIP } from "node:net";
import { abortable } from "../async/abort.ts";
import type { Clock } from "../async/clock.ts";
import type {
  NetworkAnswer,
  NetworkDecision,
  NetworkProxyConfig,
  NetworkRequest,
} from "../protocol/network/network-schemas.ts";
import { isNonPublicAddress } from "./address-ranges.ts";
import { canonicalHost, HostPolicy } from "./host-policy.ts";
import type { LookupAddresses } from "./name-lookup.ts";

/** Time for a late response of the client, in addition to its own timeout. */
const DECISION_MARGIN_MS = 5000;

/** A request that a process sends to its proxy. */
export type ProxiedRequest = Omit<NetworkRequest, "client"> & { client: string };

export interface Allowed {
  isAllowed: true;
  /** Canonical host. */
  host: string;
  port: number;
  /** The addresses that were checked; null if the policy permits all addresses of the host. */
  addresses: readonly string[] | null;
}

export interface Blocked {
  isAllowed: false;
  host: string;
  port: number;
  reason: string;
  decision: "deny" | "ask";
  source: NetworkDecision["source"];
}

export interface RequestJudgeDeps {
  config: NetworkProxyConfig;
  lookup: LookupAddresses;
  /** Reports whether the address and the port belong to a listener of this server. */
  isOwnListener: (address: string, port: number) => boolean;
  /** Asks the client. A rejection denies the request. Absent: every question is denied. */
  decide?: ((request: NetworkRequest, signal: AbortSignal) => Promise<NetworkAnswer>) | undefined;
  onDecision: (decision: NetworkDecision) => void;
  /** Aborts when the proxy closes. */
  closed: AbortSignal;
  clock: Clock;
}

/** Decides about the requests of one process, and reports every decision. */
export class RequestJudge {
  readonly #deps: RequestJudgeDeps;
  readonly #hosts: HostPolicy;

  constructor(deps: RequestJudgeDeps) {
    this.#deps = deps;
    this.#hosts = new HostPolicy(deps.config.proxy);
  }

  /** `signal` aborts when the requester has disconnected. */
  async judge(request: ProxiedRequest, signal: AbortSignal): Promise<Allowed | Blocked> {
    const early = this.#socksModeGuard(request);
    if (early) return early;
    const judged = await this.#judgeHost(request, signal);
    return judged.isAllowed ? (this.#modeGuard(request) ?? judged) : judged;
  }

  /** Reports a request that the proxy cannot serve. */
  block(request: ProxiedRequest, reason: string, source: NetworkDecision["source"]): Blocked {
    return this.#block(request, reason, { scope: "non_domain", source });
  }

  /** The order of the checks is part of the protocol: a name that the policy blocks is never looked up. */
  async #judgeHost(request: ProxiedRequest, signal: AbortSignal): Promise<Allowed | Blocked> {
    const { config, lookup, isOwnListener } = this.#deps;
    const host = canonicalHost(request.host);
    if (host === null) return this.#block(request, "not_allowed");
    const canonical = { ...request, host };
    const { ports, methods } = config.proxy;
    const rule = this.#hosts.check(host);
    if (rule === "denied" || rule === "not_allowed_local") return this.#block(canonical, rule);
    if (ports !== undefined && !ports.includes(request.port))
      return this.#block(canonical, "port_not_allowed", { scope: "non_domain" });
    if (methods !== undefined && request.protocol !== "http")
      return this.#block(canonical, "tunnel_not_allowed", { scope: "non_domain" });
    if (methods !== undefined && !methods.includes(request.method ?? ""))
      return this.#block(canonical, "method_not_listed", { scope: "non_domain" });
    if (rule === "ask") {
      if (config.policyDecisionTimeoutMs === undefined) return this.#block(canonical, "not_allowed");
      const answer = await this.#ask(canonical, config.policyDecisionTimeoutMs, signal);
      if (answer.type !== "allow")
        return this.#block(canonical, answer.reason, { source: "decider", decision: answer.type });
    }
    // `localhost` gets here only if the policy lists it literally.
    const isPinned = !config.proxy.allowLocalBinding && isIP(host) === 0 && host !== "localhost";
    const addresses = isIP(host) > 0 ? [host] : isPinned ? await lookup(host) : null;
    if (isPinned && (addresses === null || addresses.length === 0 || addresses.some(isNonPublicAddress)))
      return this.#block(canonical, "not_allowed_local");
    if (addresses?.some((address) => isOwnListener(address, request.port)))
      return this.#block(canonical, "not_allowed_local");
    const isOverride = rule === "ask";
    this.#report(canonical, {
      decision: "allow",
      source: isOverride ? "decider" : "baseline_policy",
      reason: isOverride ? "not_allowed" : "allow",
      policyOverride: isOverride,
    });
    return { isAllowed: true, host, port: request.port, addresses };
  }

  async #ask(request: ProxiedRequest, timeoutMs: number, signal: AbortSignal): Promise<NetworkAnswer> {
    const { decide, closed, clock } = this.#deps;
    const notAllowed = { type: "deny", reason: "not_allowed" } as const;
    if (!decide) return notAllowed;
    using deadline = abortAfter(clock, timeoutMs + DECISION_MARGIN_MS);
    const ended = AbortSignal.any([signal, closed, deadline.signal]);
    try {
      const answer = await abortable(decide(request, ended), ended);
      return answer.type !== "allow" && answer.reason === "" ? { ...answer, reason: "policy_denied" } : answer;
    } catch {
      return notAllowed;
    }
  }

  /** In limited mode, SOCKS5 to other ports than 443 is blocked before the host is judged. */
  #socksModeGuard(request: ProxiedRequest): Blocked | null {
    const isBlocked = this.#isLimited && request.protocol === "socks5_tcp" && request.port !== 443;
    return isBlocked ? this.block(request, "method_not_allowed", "mode_guard") : null;
  }

  #modeGuard(request: ProxiedRequest): Blocked | null {
    if (!this.#isLimited) return null;
    if (request.protocol !== "http") return this.block(request, "mitm_required", "mode_guard");
    const isRead = ["GET", "HEAD", "OPTIONS"].includes(request.method ?? "");
    return isRead ? null : this.block(request, "method_not_allowed", "mode_guard");
  }

  get #isLimited(): boolean {
    return this.#deps.config.proxy.mode === "limited";
  }

  #block(
    request: ProxiedRequest,
    reason: string,
    details: Partial<Pick<NetworkDecision, "scope" | "source">> & { decision?: "deny" | "ask" } = {},
  ): Blocked {
    const { scope, source = "baseline_policy", decision = "deny" } = details;
    const { host, port } = request;
    this.#report(request, { scope, source, decision, reason, policyOverride: false });
    return { isAllowed: false, host, port, reason, decision, source };
  }

  #report(
    { protocol, host, port, method, client }: ProxiedRequest,
    {
      scope = "domain",
      ...decided
    }: { scope?: NetworkDecision["scope"] | undefined } & Pick<
      NetworkDecision,
      "decision" | "source" | "reason" | "policyOverride"
    >,
  ): void {
    const { decision, source, reason, policyOverride } = decided;
    this.#deps.onDecision({
      timestamp: new Date().toISOString(),
      ...{ scope, decision, source, reason, protocol, host, port, method, client, policyOverride },
    });
  }
}

/** A signal that aborts after this time, unless it is disposed before. The timer does not keep the event loop alive. */
function abortAfter(clock: Clock, ms: number): Disposable & { signal: AbortSignal } {
  const controller = new AbortController();
  const timer = clock.after(ms, () => controller.abort(), { keepAlive: false });
  return { signal: controller.signal, [Symbol.dispose]: () => timer.cancel() };
}
