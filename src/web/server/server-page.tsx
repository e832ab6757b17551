import { useEffect, useRef, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { EnvironmentInfo } from "../../protocol/methods.ts";
import { formatBytes } from "../app/format.ts";
import { usePolling } from "../app/use-polling.ts";
import { LineChart } from "../components/line-chart.tsx";
import { ScrollableTable } from "../components/scrollable-table.tsx";
import { type MetricSamples, parsePrometheusText } from "./prometheus-parser.ts";

const POLL_INTERVAL_MS = 2_000;

type ServerData =
  | { type: "loading" }
  | { type: "refused"; reason: string }
  | { type: "metrics"; metrics: MetricSamples; history: Sample[] };

interface Sample {
  atSeconds: number;
  processes: number;
  memoryBytes: number;
}

/** Maximum samples of a chart: two hours. */
const MAX_SAMPLES = 3_600;

/** Server page: host information, degraded parts, and metrics for operators. */
export function ServerPage({ client }: { client: ExecServerClient }) {
  const [info, setInfo] = useState<EnvironmentInfo | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    client.info().then(setInfo, (error: unknown) => setProblem(errorMessage(error)));
  }, [client]);
  const data = useMetrics();
  return (
    <>
      <h1>Server</h1>
      {problem !== null && <p role="alert">{problem}</p>}
      {info && <Host info={info} />}
      <h2>Metrics</h2>
      {data.type === "refused" && <p>{data.reason}</p>}
      {data.type === "metrics" && (
        <>
          <LineChart
            label="processes"
            points={data.history.map(({ atSeconds, processes }) => [atSeconds, processes])}
          />
          <LineChart
            label="memory (MiB)"
            points={data.history.map(({ atSeconds, memoryBytes }) => [atSeconds, memoryBytes / 2 ** 20])}
          />
          <MetricTable metrics={data.metrics} />
        </>
      )}
    </>
  );
}

function Host({ info }: { info: EnvironmentInfo }) {
  const degraded = info.degraded ?? [];
  return (
    <>
      <dl>
        <dt>Version</dt>
        <dd>{info.executorVersion ?? "unknown"}</dd>
        <dt>System</dt>
        <dd>{info.platformOs ?? "unknown"}</dd>
        <dt>Shell</dt>
        <dd>{info.shell.path}</dd>
        <dt>Sandboxes</dt>
        <dd>{info.sandboxes?.join(", ") || "none"}</dd>
      </dl>
      {degraded.length > 0 && (
        <>
          <h2>Degraded</h2>
          <ul>
            {degraded.map((part) => (
              <li key={part}>{part}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

function MetricTable({ metrics }: { metrics: MetricSamples }) {
  const rows = [...metrics].filter(([name]) => !/_bucket\{|_bucket$/.test(name));
  return (
    <ScrollableTable label="All metrics" titles={["Metric", "Value"]}>
      {rows.map(([name, value]) => (
        <tr key={name}>
          <td>{name}</td>
          <td class="number">{/_bytes(_total)?$/.test(name) ? formatBytes(value) : String(value)}</td>
        </tr>
      ))}
    </ScrollableTable>
  );
}

function useMetrics(): ServerData {
  const [data, setData] = useState<ServerData>({ type: "loading" });
  const history = useRef<Sample[]>([]);
  usePolling(
    async (signal) => {
      const response = await fetch("/metrics", { signal }).catch(() => null);
      const text = await response?.text().catch(() => null);
      if (signal.aborted || !response || typeof text !== "string") return;
      if (!response.ok) return setData({ type: "refused", reason: text });
      const metrics = parsePrometheusText(text);
      history.current.push({
        atSeconds: Date.now() / 1000,
        processes: metrics.get("procwire_processes") ?? 0,
        memoryBytes: metrics.get("process_resident_memory_bytes") ?? 0,
      });
      if (history.current.length > MAX_SAMPLES) history.current.shift();
      setData({ type: "metrics", metrics, history: [...history.current] });
    },
    POLL_INTERVAL_MS,
    [],
  );
  return data;
}
