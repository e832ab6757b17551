/**
 * How cost grows with the number of processes, of connections, and with the amount of output: `npm run bench:curves`.
 * Writes `bench/results/curves.json`, the plot `docs/performance-curves.svg` and the section of `docs/performance.md`.
 *
 *   npm run bench:curves -- [--ours-only] [--quick] [--no-write]
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildClient, type Measured, runClient } from "./native-client.ts";
import { type Panel, plotPanels } from "./plot.ts";
import { describeMachine, median, replaceSection } from "./report.ts";
import { ourKind, peerKind, type ServerKind, ServerUnderTest, temporaryHome } from "./server-under-test.ts";

const ROOT = join(import.meta.dirname, "..");
const MIB = 1024 * 1024;

const { values: flags } = parseArgs({
  options: {
    "ours-only": { type: "boolean", default: false },
    quick: { type: "boolean", default: false },
    "no-write": { type: "boolean", default: false },
  },
});

interface Curve {
  name: string;
  xs: number[];
  /** Fewer rounds for a curve whose single points take long. */
  rounds: (x: number) => number;
  measure: (client: string, server: ServerUnderTest, x: number) => Promise<Measured>;
  panels: { title: string; x: string; y: string; key: string }[];
}

const curves: Curve[] = [
  {
    name: "processes",
    xs: flags.quick ? [1, 10] : [1, 10, 100, 1000],
    rounds: (x) => (x >= 1000 ? 1 : 3),
    async measure(client, server, x) {
      let before = 0;
      let started = 0;
      const measured = await runClient(client, ["idle", server.url, `n=${x}`], (phase) => {
        if (phase === "before") before = server.rssMib();
        else started = server.rssMib();
      });
      const ms = measured.ms ?? Number.NaN;
      return { msEach: ms / x, rss: started, kibEach: (Math.max(0, started - before) * 1024) / x };
    },
    panels: [
      { title: "Starting processes that stay", x: "processes", y: "ms each", key: "msEach" },
      { title: "Server memory with idle processes", x: "processes", y: "MiB", key: "rss" },
    ],
  },
  {
    name: "connections",
    xs: flags.quick ? [1, 10] : [1, 10, 100, 500],
    rounds: () => 3,
    measure: (client, server, x) => runClient(client, ["echo-many", server.url, `connections=${x}`, "ms=1000"]),
    panels: [
      { title: "Connections, each echoing", x: "connections", y: "round trips/s", key: "perSecond" },
      { title: "Connections, each echoing", x: "connections", y: "p99 ms", key: "p99" },
    ],
  },
  {
    name: "output",
    xs: (flags.quick ? [1, 16] : [1, 16, 256, 1024, 4096]).map((mib) => mib * MIB),
    rounds: (x) => (x >= 1024 * MIB ? 1 : 3),
    async measure(client, server, x) {
      const before = server.cpuSeconds();
      const measured = await runClient(client, ["output", server.url, "kind=head", `bytes=${x}`]);
      return {
        ...measured,
        rss: server.rssMib(),
        cpuPerGib: ((server.cpuSeconds() - before) / x) * 1024 * MIB,
      };
    },
    panels: [
      { title: "Output of one process", x: "bytes", y: "MiB/s", key: "mibPerSecond" },
      { title: "Server memory after the output", x: "bytes", y: "MiB", key: "rss" },
    ],
  },
];

const machine = describeMachine();
const client = buildClient();
const kinds: ServerKind[] = [ourKind()];
if (!flags["ours-only"]) kinds.unshift(peerKind(temporaryHome()));
const results: Record<string, Record<string, Record<number, Measured>>> = {};
const panels: Panel[] = [];
for (const curve of curves) {
  const measured = await trace(curve);
  results[curve.name] = measured;
  for (const { title, x, y, key } of curve.panels) {
    const series = kinds.map(({ name }) => ({
      name: name === "ours" ? "procwire" : "peer",
      points: curve.xs.map((at) => ({ x: at, y: measured[name]?.[at]?.[key] ?? Number.NaN })),
    }));
    panels.push({ title, x, y, series });
  }
}
if (!flags["no-write"]) write();

/** Measures each point with a fresh server, one server after the other. */
async function trace(curve: Curve): Promise<Record<string, Record<number, Measured>>> {
  const measured: Record<string, Record<number, Measured>> = {};
  for (const x of curve.xs) {
    for (const kind of kinds) {
      const rounds: Measured[] = [];
      for (let round = 0; round < curve.rounds(x); round++) {
        const server = await ServerUnderTest.start(kind);
        try {
          rounds.push(await curve.measure(client, server, x));
        } finally {
          await server.stop();
        }
      }
      const keys = Object.keys(rounds[0] ?? {});
      const medians = keys.map((key) => [key, median(rounds.map((round) => round[key])) ?? Number.NaN] as const);
      measured[kind.name] = { ...measured[kind.name], [x]: Object.fromEntries(medians) };
      console.log(curve.name, x, kind.name, JSON.stringify(measured[kind.name]?.[x]));
    }
  }
  return measured;
}

function write(): void {
  const date = new Date().toISOString().slice(0, 10);
  for (const directory of ["bench/results", "docs"]) mkdirSync(join(ROOT, directory), { recursive: true });
  writeFileSync(join(ROOT, "bench/results/curves.json"), `${JSON.stringify({ date, machine, results }, null, 2)}\n`);
  writeFileSync(join(ROOT, "docs/performance-curves.svg"), plotPanels(panels));
  const text = `![How cost grows](performance-curves.svg)\n\nMeasured on ${date}, ${machine.cores} cores, load at start ${machine.loadAtStart}; numbers in \`bench/results/curves.json\`.`;
  replaceSection(join(ROOT, "docs/performance.md"), "curves", text, "# Performance\n");
}
