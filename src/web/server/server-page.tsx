import { useEffect, useRef, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { EnvironmentInfo } from "../../protocol/methods.ts";
import { formatBytes } from "../app/format.ts";
import { usePolling } from "../app/use-polling.ts";
import { LineChart } from "../components/line-chart.tsx";
import { ScrollableTable } from "../components/scrollable-table.tsx";
import { type MetricSamples, parsePrometheusText } from "./prometheus-parser.ts";

const LOOK_EVERY_MS = 2_000;

type ServerData =
  | { type: "looking" }
  | { type: "refused"; reason: string }
  | { type: "figures"; figures: MetricSamples; history: Sample[] };

interface Sample {
  atSeconds: number;
  processes: number;
  memoryBytes: number;
}

/** Samples kept: two hours. */
const MAX_SAMPLES = 3_600;

/** Server page: host information, degraded parts, and metrics for operators. */
export function ServerPage({ client }: { client: ExecServerClient }) {
  const [info, setInfo] = useState<EnvironmentInfo | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    client.info().then(setInfo, (error: unknown) => setProblem(errorMessage(error)));
  }, [client]);
  const look = useMetrics();
  return (
    <>
      <h1>Server</h1>
      {problem !== null && <p role="alert">{problem}</p>}
      {info && <Host info={info} />}
      <h2>Figures</h2>
      {look.type === "refused" && <p>{look.reason}</p>}
      {look.type === "figures" && (
        <>
          <LineChart
            label="processes"
            points={look.history.map(({ atSeconds, processes }) => [atSeconds, processes])}
          />
          <LineChart
            label="memory (MiB)"
            points={look.history.map(({ atSeconds, memoryBytes }) => [atSeconds, memoryBytes / 2 ** 20])}
          />
          <MetricTable figures={look.figures} />
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

function MetricTable({ figures }: { figures: MetricSamples }) {
  const rows = [...figures].filter(([name]) => !/_bucket\{|_bucket$/.test(name));
  return (
    <ScrollableTable label="All figures" titles={["Figure", "Value"]}>
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
  const [look, setLook] = useState<ServerData>({ type: "looking" });
  const history = useRef<Sample[]>([]);
  usePolling(
    async (signal) => {
      const answer = await fetch("/metrics", { signal }).catch(() => null);
      const text = await answer?.text().catch(() => null);
      if (signal.aborted || !answer || typeof text !== "string") return;
      if (!answer.ok) return setLook({ type: "refused", reason: text });
      const figures = parsePrometheusText(text);
      history.current.push({
        atSeconds: Date.now() / 1000,
        processes: figures.get("procwire_processes") ?? 0,
        memoryBytes: figures.get("process_resident_memory_bytes") ?? 0,
      });
      if (history.current.length > MAX_SAMPLES) history.current.shift();
      setLook({ type: "figures", figures, history: [...history.current] });
    },
    LOOK_EVERY_MS,
    [],
  );
  return look;
}
