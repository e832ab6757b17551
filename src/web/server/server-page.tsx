import { useEffect, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import { MISSING_ADDON, MISSING_WATCHDOG } from "../../protocol/degraded-features.ts";
import type { EnvironmentInfo } from "../../protocol/methods.ts";
import { formatAge, formatBytes, formatCount } from "../app/format.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { Alert } from "../components/alert.tsx";
import { Badge } from "../components/badge.tsx";
import { LineChart } from "../components/line-chart.tsx";
import { TableHeader } from "../components/table-header.tsx";
import type { ChartName } from "./metric-history.ts";
import type { MetricSamples } from "./prometheus-parser.ts";
import type { MetricsState } from "./use-metrics.ts";

const CHARTS: readonly [ChartName, string, "bytes" | "count" | "number", (value: number) => string][] = [
  ["memory", "Memory of the server", "bytes", formatBytes],
  ["cpu", "CPU of the server", "number", (percent) => `${round(percent)} %`],
  ["processes", "Processes", "count", (count) => formatCount(round(count))],
  ["connections", "Connections", "count", (count) => formatCount(round(count))],
  ["output", "Output rate", "bytes", (bytes) => `${formatBytes(bytes)}/s`],
  ["refusals", "Refusals per minute", "number", (perMinute) => formatCount(round(perMinute))],
];

/** Server page: degraded features first, then host information and metrics. */
export function ServerPage({ client, metrics }: { client: ExecServerClient; metrics: MetricsState }) {
  usePageTitle("Server");
  const [info, setInfo] = useState<EnvironmentInfo | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    client.info().then(setInfo, (error: unknown) => setProblem(userMessage(error)));
  }, [client]);
  const degraded = info?.degraded ?? [];
  return (
    <>
      <div class="page-head">
        <h1>Server</h1>
        {info && (
          <Badge
            tone={degraded.length === 0 ? "success" : "waiting"}
            label={degraded.length === 0 ? "healthy" : `${degraded.length} degraded`}
          />
        )}
      </div>
      <Alert message={problem} />
      {degraded.length > 0 && <Degraded features={degraded} />}
      {info && <Host info={info} metrics={metrics.type === "metrics" ? metrics.metrics : null} />}
      {metrics.type === "refused" && <p class="card notice">{metrics.reason}</p>}
      {metrics.type === "metrics" && (
        <>
          <div class="charts">
            {CHARTS.map(([name, label, kind, format]) => (
              <LineChart key={name} label={label} kind={kind} points={metrics.history.points[name]} format={format} />
            ))}
          </div>
          <RawMetrics metrics={metrics.metrics} />
        </>
      )}
    </>
  );
}

function Degraded({ features }: { features: readonly string[] }) {
  return (
    <section class="card degraded" aria-label="Degraded features">
      <h2>Degraded features</h2>
      <ul>
        {features.map((feature) => (
          <li key={feature}>
            <strong>{feature}</strong>
            <div class="muted">{findRemedy(feature)}</div>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Returns what a user can do about a degraded feature. */
export function findRemedy(feature: string): string {
  const [name] = feature.split(":");
  if (name === MISSING_ADDON)
    return "Terminals and sandboxes need the native addon. Install the platform package or a C++ compiler on the host, then restart the server.";
  if (name === MISSING_WATCHDOG)
    return "Processes may survive a crash of the server. Reinstall procwire on the host, then restart the server.";
  return "Run `procwire doctor` on the host. It tests the feature and names the remedy.";
}

function Host({ info, metrics }: { info: EnvironmentInfo; metrics: MetricSamples | null }) {
  const startSeconds = metrics?.get("process_start_time_seconds");
  const facts: [string, string][] = [
    ["Version", info.executorVersion ?? "unknown"],
    ["Uptime", startSeconds === undefined ? "" : formatAge(Date.now() - startSeconds * 1000)],
    ["System", info.platformOs ?? "unknown"],
    ["Shell", info.shell.path],
    ["Sandboxes", info.sandboxes?.join(", ") || "none"],
    ["Sessions", metrics === null ? "" : formatCount(metrics.get("procwire_sessions") ?? 0)],
  ];
  return (
    <dl class="tiles">
      {facts
        .filter(([, value]) => value !== "")
        .map(([name, value]) => (
          <div key={name} class="card tile">
            <dt>{name}</dt>
            <dd class="clipped" title={value}>
              {value}
            </dd>
          </div>
        ))}
    </dl>
  );
}

/** All metrics under their Prometheus names. */
function RawMetrics({ metrics }: { metrics: MetricSamples }) {
  const [isOpen, setOpen] = useState(false);
  const rows = [...metrics].filter(([name]) => !/_bucket(\{|$)/.test(name));
  return (
    <details class="card raw-metrics" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Raw metrics</summary>
      {isOpen && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard
        <section class="scroll" tabIndex={0} aria-label="All metrics">
          <table>
            <TableHeader titles={["Metric", "Value"]} numbers={["Value"]} />
            <tbody>
              {rows.map(([name, value]) => (
                <tr key={name}>
                  <td>
                    <code>{name}</code>
                  </td>
                  <td class="number">{/_bytes(_total)?$/.test(name) ? formatBytes(value) : String(value)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </details>
  );
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
