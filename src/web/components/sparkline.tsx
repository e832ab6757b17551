const WIDTH = 64;
const HEIGHT = 16;
/** Points across the whole width. */
const MAX_POINTS = 30;

/** Line of recent values without axes. Decorative: the latest value is shown as text next to it. */
export function Sparkline({ values }: { values: readonly number[] }) {
  const max = Math.max(...values, 0);
  const step = WIDTH / (MAX_POINTS - 1);
  const left = WIDTH - (values.length - 1) * step;
  const points = values.map((value, index) => {
    const y = max === 0 ? HEIGHT - 1 : HEIGHT - 1 - (value / max) * (HEIGHT - 2);
    return `${(left + index * step).toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} aria-hidden="true">
      {max > 0 && <polyline points={points.join(" ")} />}
    </svg>
  );
}
