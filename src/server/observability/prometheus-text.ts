import type { MemoryBudget } from "../../async/memory-budget.ts";
import { VERSION } from "../../version.ts";
import type { AuditLog } from "../audit/audit-log.ts";
import type { EventLoopLag, Histogram, ServerMetrics } from "./server-metrics.ts";

/** Values sampled when metrics are scraped; counters are in `ServerMetrics`. */
export interface ServerState {
  connections: number;
  sessions: number;
  /** Principals that hold a resource. */
  principals: number;
  queuedBytes: number;
  degradedParts: number;
  memory: Pick<MemoryBudget, "bytes" | "limitBytes" | "maxBytes">;
  /** Null on the first scrape. */
  loopLag: EventLoopLag | null;
  openDescriptors: number | null;
  /** Null without an audit log. */
  audit: Pick<AuditLog, "lines" | "isWritable" | "droppedSinkLines"> | null;
}

type Labels = Readonly<Record<string, string | number>>;

/** Returns the metrics in Prometheus text format 0.0.4 and by its naming conventions. */
export function prometheusText(metrics: ServerMetrics, state: ServerState): string {
  const page = new PrometheusWriter();
  const { rss, heapUsed, external } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  page.gauge("procwire_build_info", "Version of the server; the value is always 1", 1, { version: VERSION });
  page.gauge("procwire_processes", "Live processes", metrics.liveProcesses);
  page.gauge("procwire_processes_paused", "Processes paused by backpressure", metrics.pausedProcesses);
  page.counter("procwire_processes_started_total", "Processes started", metrics.startedProcesses);
  page.counter("procwire_process_starts_failed_total", "Rejected and failed starts", metrics.failedStarts);
  page.countersBy("reason", "procwire_processes_ended_total", "Processes ended, by reason", metrics.exitsByReason);
  page.counter("procwire_output_bytes_total", "Bytes of output read from processes", metrics.outputBytes);
  page.counter("procwire_input_bytes_total", "Bytes of input written to processes", metrics.inputBytes);
  page.gauge("procwire_forward_streams", "Open forwarded TCP streams", metrics.forwardStreams);
  page.counter("procwire_forwarded_bytes_total", "Bytes of forwarded streams", metrics.forwardedBytes);
  page.counters(
    "procwire_network_decisions_total",
    "Decisions of network proxies of processes, by decision and reason",
    [...metrics.networkDecisions].flatMap(([decision, byReason]) =>
      [...byReason].map(([reason, value]): [Labels, number] => [{ decision, reason }, value]),
    ),
  );
  page.gauge("procwire_connections", "Open connections", state.connections);
  page.counter("procwire_connections_total", "Connections accepted", metrics.acceptedConnections);
  page.gauge("procwire_sessions", "Connected and detached sessions", state.sessions);
  page.gauge("procwire_principals", "Principals that hold a resource with a quota", state.principals);
  page.countersBy(
    "quota",
    "procwire_quota_refusals_total",
    "Requests rejected because a principal reached its quota, by quota",
    metrics.quotaRefusals,
  );
  page.gauge("procwire_queued_bytes", "Bytes queued for all connections", state.queuedBytes);
  page.gauge("procwire_degraded_parts", "Degraded features; /healthz lists them", state.degradedParts);
  page.gauge("procwire_memory_budget_used_bytes", "Memory charged to the budget", state.memory.bytes);
  page.gauge("procwire_memory_budget_limit_bytes", "Limit of the budget in force", state.memory.limitBytes);
  page.gauge("procwire_memory_budget_max_bytes", "Configured or default budget", state.memory.maxBytes);
  page.countersBy(
    "status",
    "procwire_connections_rejected_total",
    "Connections rejected before the upgrade, by HTTP status",
    metrics.rejectionsByStatus,
  );
  page.histograms(
    "procwire_request_duration_seconds",
    "Time from request to response, by method; includes the time of waits",
    [...metrics.requestDurations].map(([method, histogram]) => [{ method }, histogram]),
  );
  page.histograms("procwire_spawn_duration_seconds", "Time to start a process", [[{}, metrics.spawnDurations]]);
  if (state.audit) {
    const { lines, isWritable, droppedSinkLines } = state.audit;
    page.counter("procwire_audit_lines_total", "Lines written to the audit log", lines);
    page.gauge("procwire_audit_writable", "1, or 0 while audited calls are refused", isWritable ? 1 : 0);
    page.counter(
      "procwire_audit_sink_dropped_total",
      "Lines that the audit sink did not receive",
      droppedSinkLines ?? 0,
    );
  }
  if (state.loopLag) {
    const { meanSeconds, p99Seconds, maxSeconds } = state.loopLag;
    page.gauge("procwire_event_loop_lag_mean_seconds", "Mean event loop delay since the last scrape", meanSeconds);
    page.gauge("procwire_event_loop_lag_p99_seconds", "99th percentile of the event loop delay", p99Seconds);
    page.gauge("procwire_event_loop_lag_max_seconds", "Maximum event loop delay", maxSeconds);
  }
  page.gauge("process_resident_memory_bytes", "Resident memory", rss);
  page.gauge("nodejs_heap_size_used_bytes", "Memory used by V8's heap", heapUsed);
  page.gauge("nodejs_external_memory_bytes", "Memory of buffers outside of V8's heap", external);
  page.counter("process_cpu_seconds_total", "User and system time", (user + system) / 1e6);
  page.gauge("process_start_time_seconds", "Start time of the server since the epoch", startSeconds());
  if (state.openDescriptors !== null) page.gauge("process_open_fds", "Open file descriptors", state.openDescriptors);
  return page.text;
}

const startSeconds = () => Math.round(Date.now() / 1000 - process.uptime());

class PrometheusWriter {
  text = "";

  gauge(name: string, help: string, value: number, labels: Labels = {}): void {
    this.#head(name, help, "gauge");
    this.#line(name, labels, value);
  }

  counter(name: string, help: string, value: number): void {
    this.counters(name, help, [[{}, value]]);
  }

  counters(name: string, help: string, values: [Labels, number][]): void {
    this.#head(name, help, "counter");
    for (const [labels, value] of values) this.#line(name, labels, value);
  }

  /** Writes one counter per value of a label. */
  countersBy(label: string, name: string, help: string, values: Iterable<[string | number, number]>): void {
    this.counters(
      name,
      help,
      Array.from(values, ([text, value]) => [{ [label]: text }, value]),
    );
  }

  histograms(name: string, help: string, values: [Labels, Histogram][]): void {
    this.#head(name, help, "histogram");
    for (const [labels, { bounds, counts, count, sumSeconds }] of values) {
      let cumulative = 0;
      bounds.forEach((bound, at) => {
        cumulative += counts[at] ?? 0;
        this.#line(`${name}_bucket`, { ...labels, le: bound }, cumulative);
      });
      this.#line(`${name}_bucket`, { ...labels, le: "+Inf" }, count);
      this.#line(`${name}_sum`, labels, sumSeconds);
      this.#line(`${name}_count`, labels, count);
    }
  }

  #head(name: string, help: string, type: "gauge" | "counter" | "histogram"): void {
    this.text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  }

  #line(name: string, labels: Labels, value: number): void {
    const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escapeLabel(String(text))}"`);
    this.text += `${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}\n`;
  }
}

const escapeLabel = (text: string) => text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
