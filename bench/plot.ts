/** A plot as SVG text: small panels of lines over logarithmic axes, readable without color by their labels. */
export interface Panel {
  title: string;
  x: string;
  y: string;
  series: { name: string; points: { x: number; y: number }[] }[];
}

const PANEL = { width: 420, height: 260, left: 62, right: 70, top: 34, bottom: 42 };
const COLUMNS = 2;
const COLOURS: Record<string, string> = { peer: "#b45309", procwire: "#1d4ed8" };

const LABEL_HEIGHT = 13;

export function plotPanels(panels: Panel[]): string {
  const rows = Math.ceil(panels.length / COLUMNS);
  const width = PANEL.width * COLUMNS;
  const height = PANEL.height * rows;
  const drawn = panels.map((panel, at) => {
    const x = (at % COLUMNS) * PANEL.width;
    const y = Math.floor(at / COLUMNS) * PANEL.height;
    return `<g transform="translate(${x} ${y})">${drawPanel(panel)}</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="11">`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    ...drawn,
    "</svg>\n",
  ].join("\n");
}

function drawPanel(panel: Panel): string {
  const points = panel.series.flatMap((series) => series.points).filter(isDrawable);
  const x = axis(
    points.map((point) => point.x),
    PANEL.left,
    PANEL.width - PANEL.right,
  );
  const y = axis(
    points.map((point) => point.y),
    PANEL.height - PANEL.bottom,
    PANEL.top,
  );
  const parts = [
    `<text x="${PANEL.left}" y="18" font-size="13" font-weight="bold" fill="#111827">${escaped(panel.title)}</text>`,
    `<text x="${(PANEL.left + PANEL.width - PANEL.right) / 2}" y="${PANEL.height - 8}" text-anchor="middle" fill="#374151">${escaped(panel.x)}</text>`,
    `<text transform="translate(14 ${(PANEL.top + PANEL.height - PANEL.bottom) / 2}) rotate(-90)" text-anchor="middle" fill="#374151">${escaped(panel.y)}</text>`,
  ];
  for (const tick of y.ticks) {
    const at = y.place(tick).toFixed(1);
    parts.push(
      `<line x1="${PANEL.left}" x2="${PANEL.width - PANEL.right}" y1="${at}" y2="${at}" stroke="#e5e7eb"/>`,
      `<text x="${PANEL.left - 6}" y="${at}" dy="4" text-anchor="end" fill="#6b7280">${short(tick)}</text>`,
    );
  }
  for (const tick of new Set(points.map((point) => point.x))) {
    const at = x.place(tick).toFixed(1);
    parts.push(
      `<text x="${at}" y="${PANEL.height - PANEL.bottom + 16}" text-anchor="middle" fill="#6b7280">${short(tick, panel.x === "bytes")}</text>`,
    );
  }
  const ends: { name: string; x: string; y: number }[] = [];
  for (const { name, points: all } of panel.series) {
    const line = all.filter(isDrawable).map((point) => ({ x: x.place(point.x).toFixed(1), y: y.place(point.y) }));
    const path = line.map((at) => `${at.x},${at.y.toFixed(1)}`).join(" ");
    parts.push(`<polyline fill="none" stroke="${colorOf(name)}" stroke-width="2" points="${path}"/>`);
    for (const at of line) {
      parts.push(`<circle cx="${at.x}" cy="${at.y.toFixed(1)}" r="3" fill="${colorOf(name)}"/>`);
    }
    const last = line.at(-1);
    if (last) ends.push({ name, ...last });
  }
  // Each name is next to the end of its line, moved down if it would cover another name.
  ends.sort((a, b) => a.y - b.y);
  let free = 0;
  for (const end of ends) {
    const at = Math.max(end.y, free);
    free = at + LABEL_HEIGHT;
    parts.push(
      `<text x="${end.x}" y="${at.toFixed(1)}" dx="7" dy="4" fill="${colorOf(end.name)}">${escaped(end.name)}</text>`,
    );
  }
  return parts.join("\n");
}

function colorOf(name: string): string {
  return COLOURS[name] ?? "#111827";
}

interface Axis {
  ticks: number[];
  place(value: number): number;
}

/** Returns a logarithmic scale between powers of ten around the values, with at least one decade. */
function axis(values: number[], from: number, to: number): Axis {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const ticks = Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
  return { ticks, place: (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from) };
}

function isDrawable(point: { x: number; y: number }): boolean {
  return point.x > 0 && point.y > 0;
}

function short(value: number, bytes = false): string {
  if (bytes) return value >= 1024 ** 3 ? `${value / 1024 ** 3} GiB` : `${value / 1024 ** 2} MiB`;
  return value >= 1 ? value.toLocaleString("en") : String(Number(value.toPrecision(1)));
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
