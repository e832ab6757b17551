import { useEffect, useState } from "preact/hooks";
import { fetchSignedIn } from "../app/sign-in.ts";
import { MetricHistory } from "./metric-history.ts";
import { type MetricSamples, parsePrometheusText } from "./prometheus-parser.ts";

const POLL_INTERVAL_MS = 2_000;

export type MetricsState =
  | { type: "loading" }
  /** The server has no metrics, or the user may not read them. */
  | { type: "refused"; reason: string }
  | { type: "metrics"; metrics: MetricSamples; history: MetricHistory };

/**
 * Polls the metrics while the console is open, also on other pages and in a hidden tab, so that the charts have no
 * gaps. Stops after a rejection, until the page is loaded again.
 */
export function useMetrics(): MetricsState {
  const [state, setState] = useState<MetricsState>({ type: "loading" });
  useEffect(() => {
    const history = new MetricHistory();
    const unmounted = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const poll = async () => {
      const response = await fetchSignedIn("/metrics", { signal: unmounted.signal }).catch(() => null);
      const text = (await response?.text().catch(() => null)) ?? null;
      if (unmounted.signal.aborted) return;
      if (response && !response.ok && response.status < 500)
        return setState({ type: "refused", reason: (text ?? "").trim() });
      if (response?.ok && text !== null) {
        const metrics = parsePrometheusText(text);
        history.add(metrics, Date.now() / 1000);
        setState({ type: "metrics", metrics, history });
      }
      timer = setTimeout(() => void poll(), POLL_INTERVAL_MS);
    };
    void poll();
    return () => {
      unmounted.abort();
      clearTimeout(timer);
    };
  }, []);
  return state;
}
