/** Values of the Prometheus text format by name and labels. */
export type MetricSamples = ReadonlyMap<string, number>;

export function parsePrometheusText(text: string): MetricSamples {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const at = line.lastIndexOf(" ");
      return [line.slice(0, at), Number(line.slice(at + 1))];
    }),
  );
}
