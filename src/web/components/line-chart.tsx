import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const HEIGHT = 140;
/** A curve that has just begun shows at least this much time. */
const LEAST_SECONDS = 60;

/** One figure over time. */
export function LineChart({
  label,
  points,
}: {
  label: string;
  points: readonly (readonly [number, number])[];
}) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    if (!place.current) return;
    const style = getComputedStyle(place.current);
    const axis = { stroke: style.color, grid: { stroke: "rgba(128,128,128,.25)" } };
    plot.current = new uPlot(
      {
        width: place.current.clientWidth,
        height: HEIGHT,
        scales: { x: { range: (_, from, to) => [Math.min(from, to - LEAST_SECONDS), to] } },
        series: [{}, { label, stroke: "#1f6feb", width: 2 }],
        axes: [axis, axis],
        legend: { show: false },
      },
      [[], []],
      place.current,
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
      <div ref={place} />
    </figure>
  );
}
