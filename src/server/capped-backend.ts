import type { HostBackend, HostProcess } from "../exec/backend/host-backend.ts";
import { mergeLimits } from "../exec/backend/process-limits.ts";
import { onceEnded } from "../exec/backend/process-state.ts";
import type { StartParams } from "../exec/exec-process.ts";
import { invalidRequest, type RequestError } from "../protocol/errors.ts";
import type { NetworkDecision } from "../protocol/network/network-schemas.ts";
import { LOCAL_PRINCIPAL } from "./auth/principal.ts";
import { NetworkLog, setNetworkLog } from "./network/network-log.ts";
import type { ServerMetrics } from "./observability/server-metrics.ts";
import type { PrincipalQuotas } from "./principal-quotas.ts";
import type { ServerConfig } from "./server-config.ts";

export interface CappedBackendDeps {
  config: ServerConfig;
  quotas: PrincipalQuotas;
  metrics: ServerMetrics | null;
  /** Returns the error of every start once the server closes; null before. */
  closingError: () => RequestError | null;
}

/** The backend of a server: applies the server's limits, caps and quotas to each start, and counts live processes. */
export class CappedBackend implements HostBackend {
  readonly #backend: HostBackend;
  readonly #deps: CappedBackendDeps;
  #liveProcesses = 0;

  constructor(backend: HostBackend, deps: CappedBackendDeps) {
    this.#backend = backend;
    this.#deps = deps;
  }

  get liveProcessCount(): number {
    return this.#liveProcesses;
  }

  async start(params: StartParams): Promise<HostProcess> {
    const error = this.#deps.closingError();
    if (error) throw error;
    const limits = mergeLimits(this.#deps.config.limits, params.limits);
    return await this.#startTracked(limits ? { ...params, limits } : params);
  }

  async usage(): ReturnType<NonNullable<HostBackend["usage"]>> {
    return (await this.#backend.usage?.()) ?? new Map();
  }

  degradedComponents(): string[] {
    return this.#backend.degradedComponents();
  }

  shutdown(graceMs: number): Promise<void> {
    return this.#backend.shutdown(graceMs);
  }

  async endNonPersistent(graceMs: number): Promise<void> {
    await this.#backend.endNonPersistent?.(graceMs);
  }

  get persistenceUnavailableReason(): string | null {
    return this.#backend.persistenceUnavailableReason;
  }

  /** Counts a persistent process of the previous server. It may exceed the quota of its owner. */
  restore(process: HostProcess, ownerId: string): void {
    this.#countUntilEnded(process, this.#deps.quotas.restore(ownerId, "processes"));
  }

  async #startTracked(params: StartParams): Promise<HostProcess> {
    const { config, quotas, metrics } = this.#deps;
    if (this.#liveProcesses >= config.maxServerProcesses) {
      throw invalidRequest(
        `too many processes: this server may have ${config.maxServerProcesses} live processes at once; end one first, or raise --max-server-processes`,
      );
    }
    const { ownerId = LOCAL_PRINCIPAL.id } = params;
    const release = quotas.acquire(ownerId, "processes");
    // A start in flight counts, so that concurrent starts do not exceed the limit.
    this.#liveProcesses++;
    const beganAtMs = performance.now();
    try {
      const started = await (params.networkProxy ? this.#startRecorded(params) : this.#backend.start(params));
      metrics?.processStarted(started, performance.now() - beganAtMs);
      this.#countUntilEnded(started, release);
      return started;
    } catch (error) {
      release();
      if (metrics) metrics.failedStarts++;
      throw error;
    } finally {
      this.#liveProcesses--;
    }
  }

  /** Starts a process and records the decisions of its network proxy. */
  async #startRecorded(params: StartParams): Promise<HostProcess> {
    const network = new NetworkLog(Date.now);
    const onNetworkDecision = (decision: NetworkDecision) => {
      network.add(decision);
      this.#deps.metrics?.networkDecided(decision);
      params.onNetworkDecision?.(decision);
    };
    const started = await this.#backend.start({ ...params, onNetworkDecision });
    setNetworkLog(started, network);
    return started;
  }

  #countUntilEnded(process: HostProcess, release: () => void): void {
    this.#liveProcesses++;
    onceEnded(process, () => {
      this.#liveProcesses--;
      release();
    });
  }
}
