import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { type ChartPoint, chartTimeRange } from "./chart-point.ts";

const HEIGHT = 140;
/** Minimum distance of two labels of the time axis, in pixels; a label is about 55 px wide. */
const LABEL_SPACE_PX = 90;
const X_AXIS_PX = 30;
/** Distance of the labels of the time axis from the plot, so that they do not touch the lowest label of the value axis. */
const X_GAP_PX = 9;
/** Space above the highest line. The other sides adapt to the labels of the axes. */
const TOP_PX = 6;
/** Width of a character of the labels, and of the margin of a label. */
const LABEL_CHARACTER_PX = 6.5;
const LABEL_MARGIN_PX = 14;
/** Distances of the labels of the time axis, in seconds. */
const TIME_INCREMENTS = [
  1,
  2,
  5,
  10,
  15,
  30,
  ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((m) => m * 60),
];

/** Distances of the lines of the value axis. */
const INCREMENTS = {
  bytes: Array.from({ length: 44 }, (_, power) => 2 ** power),
  count: powersOfTen(0),
  number: powersOfTen(-3),
};

/** Returns 1, 2 and 5 times powers of ten, beginning with 10 ** `from`. */
function powersOfTen(from: number): number[] {
  return Array.from({ length: 16 }, (_, index) => [1, 2, 5].map((digit) => digit * 10 ** (index + from))).flat();
}

/** Chart of one metric over time. The caption has the latest value, or the value below the pointer. */
export function LineChart({
  label,
  points,
  kind,
  format,
}: {
  label: string;
  points: readonly ChartPoint[];
  /** Unit of the value axis: bytes get powers of two, counts get whole numbers. */
  kind: keyof typeof INCREMENTS;
  /** Formats a value with its unit. */
  format: (value: number) => string;
}) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const formatter = useRef(format);
  formatter.current = format;
  const [hovered, setHovered] = useState<number | null>(null);
  useEffect(() => {
    const element = container.current;
    if (!element) return;
    const color = (token: string) => () => resolveColor(element, token);
    const axis = {
      stroke: color("--color-muted"),
      grid: { stroke: color("--color-border"), width: 1 },
      ticks: { show: false },
      font: `11px ${getComputedStyle(element).fontFamily}`,
    };
    const created = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [TOP_PX, null, null, null],
        // uPlot would pad the range of a single sample by years.
        scales: {
          x: { range: ({ data }) => chartTimeRange(data[0], Date.now() / 1000) },
          y: { range: (_, __, max) => [0, max > 0 ? max * 1.15 : 1] },
        },
        series: [
          {},
          {
            label,
            stroke: color("--color-fill-accent"),
            fill: color("--color-accent-soft"),
            width: 1.5,
            points: { show: (chart) => chart.data[0].length < 2 },
          },
        ],
        axes: [
          {
            ...axis,
            size: X_AXIS_PX,
            gap: X_GAP_PX,
            space: LABEL_SPACE_PX,
            incrs: TIME_INCREMENTS,
            values: (chart, splits) => splits.map((at) => formatTime(chart, at)),
          },
          {
            ...axis,
            size: (_, labels) =>
              LABEL_MARGIN_PX + LABEL_CHARACTER_PX * Math.max(...(labels ?? []).map(({ length }) => length), 1),
            space: 24,
            incrs: INCREMENTS[kind],
            values: (_, splits) => splits.map((value) => formatter.current(value)),
          },
        ],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        hooks: { setCursor: [({ cursor }) => setHovered(cursor.idx ?? null)] },
      },
      [[], []],
      element,
    );
    plot.current = created;
    const watcher = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: HEIGHT }));
    watcher.observe(element);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => created.redraw();
    theme.addEventListener("change", redraw);
    return () => {
      watcher.disconnect();
      theme.removeEventListener("change", redraw);
      created.destroy();
    };
  }, [label]);
  useEffect(() => {
    plot.current?.setData([points.map(([x]) => x), points.map(([, y]) => y)]);
  }, [points]);
  const shown = points[hovered ?? points.length - 1];
  const value = shown?.[1] ?? null;
  return (
    <figure class="card chart" aria-label={label}>
      <figcaption>
        <span>{label}</span>
        <span class="spacer" />
        {hovered !== null && shown && <span class="muted">{new Date(shown[0] * 1000).toLocaleTimeString()}</span>}
        <strong>{value === null ? "" : format(value)}</strong>
      </figcaption>
      <div ref={container} />
    </figure>
  );
}

function formatTime({ data: [times] }: uPlot, atSeconds: number): string {
  const isShort = (times.at(-1) ?? 0) - (times[0] ?? 0) < 600;
  const seconds = isShort ? ({ second: "2-digit" } as const) : {};
  return new Date(atSeconds * 1000).toLocaleTimeString([], {
    ...{ hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...seconds },
  });
}

/** Returns the color of a token in the current theme, which a canvas cannot resolve itself. */
function resolveColor(element: HTMLElement, token: string): string {
  const before = element.style.color;
  element.style.color = `var(${token})`;
  const { color } = getComputedStyle(element);
  element.style.color = before;
  return color;
}
