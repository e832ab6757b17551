import type { ChartPoint } from "../components/chart-point.ts";
import type { MetricSamples } from "./prometheus-parser.ts";

/** Time that the charts cover. */
const HISTORY_SECONDS = 2 * 3600;

/** Metrics of the charts. */
export type ChartName = "memory" | "cpu" | "processes" | "connections" | "output" | "refusals";

/** Current value of a gauge, or total of a counter whose rate is charted. */
const SOURCES: Readonly<Record<ChartName, { isCounter: boolean; read: (metrics: MetricSamples) => number }>> = {
  memory: { isCounter: false, read: (metrics) => metrics.get("process_resident_memory_bytes") ?? 0 },
  cpu: { isCounter: true, read: (metrics) => (metrics.get("process_cpu_seconds_total") ?? 0) * 100 },
  processes: { isCounter: false, read: (metrics) => metrics.get("procwire_processes") ?? 0 },
  connections: { isCounter: false, read: (metrics) => metrics.get("procwire_connections") ?? 0 },
  output: { isCounter: true, read: (metrics) => metrics.get("procwire_output_bytes_total") ?? 0 },
  /** Per minute: refusals are rare. */
  refusals: { isCounter: true, read: (metrics) => countRefusals(metrics) * 60 },
};
const NAMES = Object.keys(SOURCES).filter((name): name is ChartName => name in SOURCES);

/** Rejected connections and failed starts. */
function countRefusals(metrics: MetricSamples): number {
  let refusals = metrics.get("procwire_process_starts_failed_total") ?? 0;
  for (const [name, value] of metrics) if (name.startsWith("procwire_connections_rejected_total")) refusals += value;
  return refusals;
}

interface Sample {
  atSeconds: number;
  values: Readonly<Record<ChartName, number>>;
}

/** Chart points of the last two hours. Survives a change of the page. */
export class MetricHistory {
  #points: Record<ChartName, readonly ChartPoint[]> = {
    ...{ memory: [], cpu: [], processes: [], connections: [], output: [], refusals: [] },
  };
  #last: Sample | null = null;

  get points(): Readonly<Record<ChartName, readonly ChartPoint[]>> {
    return this.#points;
  }

  add(metrics: MetricSamples, atSeconds: number): void {
    const values = { memory: 0, cpu: 0, processes: 0, connections: 0, output: 0, refusals: 0 };
    for (const name of NAMES) values[name] = SOURCES[name].read(metrics);
    const last = this.#last;
    const points = { ...this.#points };
    for (const name of NAMES) {
      const { isCounter } = SOURCES[name];
      // A rate requires an earlier sample.
      if (isCounter && (last === null || atSeconds <= last.atSeconds)) continue;
      const value = isCounter && last !== null ? rate(last, name, values[name], atSeconds) : values[name];
      const kept = points[name].filter(([at]) => at >= atSeconds - HISTORY_SECONDS);
      points[name] = [...kept, [atSeconds, value]];
    }
    this.#points = points;
    this.#last = { atSeconds, values };
  }
}

/** Returns the increase per second since an earlier sample; null after a restart of the server. */
function rate(last: Sample, name: ChartName, value: number, atSeconds: number): number | null {
  const before = last.values[name];
  return value < before ? null : (value - before) / (atSeconds - last.atSeconds);
}
