import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const HEIGHT = 140;
/** Minimum width of the time axis. */
const MIN_SECONDS = 60;

/** Chart of one metric over time. */
export function LineChart({ label, points }: { label: string; points: readonly (readonly [number, number])[] }) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    if (!container.current) return;
    const style = getComputedStyle(container.current);
    const axis = { stroke: style.color, grid: { stroke: "rgba(128,128,128,.25)" } };
    plot.current = new uPlot(
      {
        width: container.current.clientWidth,
        height: HEIGHT,
        scales: { x: { range: (_, from, to) => [Math.min(from, to - MIN_SECONDS), to] } },
        series: [{}, { label, stroke: "#1f6feb", width: 2 }],
        axes: [axis, axis],
        legend: { show: false },
      },
      [[], []],
      container.current,
    );
    return () => plot.current?.destroy();
  }, [label]);
  useEffect(() => {
    plot.current?.setData([points.map(([x]) => x), points.map(([, y]) => y)]);
  }, [points]);
  const [, last] = points.at(-1) ?? [0, 0];
  return (
    <figure>
      <figcaption>
        {label}: {Math.round(last * 10) / 10}
      </figcaption>
      <div ref={container} />
    </figure>
  );
}
