import { commandTimes } from "./commands.ts";
import { memoryScenarios } from "./memory-scenarios.ts";
import type { Measured } from "./native-client.ts";
import { runClient } from "./native-client.ts";
import type { ServerKind, ServerUnderTest } from "./server-under-test.ts";

/**
 * `atLeast`: minimum factor by which procwire beats the peer. `atMost`: maximum share of the peer's value. `atMostOfLimit`:
 * maximum multiple of the baseline. `atMostValue`: maximum value in the unit of the metric.
 */
export type Target = { atLeast: number } | { atMost: number } | { atMostOfLimit: number } | { atMostValue: number };

/** A row of the results table: one measurement of a scenario, and its target. */
export interface Metric {
  label: string;
  /** Name of the measurement in the result of the scenario. */
  key: string;
  unit: string;
  better: "higher" | "lower";
  /** Absent: the row has no target. */
  target?: Target;
  /** Whether the ratio is a share of the Codex server's value even without a target. */
  asPart?: boolean;
  /** Meaning of a negative number. */
  negative?: string;
  /** Name of the baseline measurement: the same operation without a server, if that makes sense. */
  limit?: string;
}

export interface Scenario {
  /** Name that `--only` selects; a prefix up to a hyphen names the group. */
  name: string;
  metrics: Metric[];
  rounds: number;
  /** Starts a separate server for each round, because of the state that a round leaves behind. */
  fresh?: boolean;
  /** Run of the client that measures the baselines of this scenario in each round, because they depend on the host's load. */
  limits?: string[];
  /** Additional flags of the procwire server; requires `fresh`. */
  oursFlags?: string[];
  run(context: RunContext): Promise<Measured>;
}

export interface RunContext {
  client: string;
  kind: ServerKind;
  server: ServerUnderTest;
}

const OUTPUT_BYTES = 256 * 1024 * 1024;

export const scenarios: Scenario[] = [
  {
    ...plain("spawn", ["spawn", "n=100"], 5, [
      latency("start + exit of /bin/true, p50", "p50", { atLeast: 5 }, "p50"),
      latency("start + exit of /bin/true, p50, compared with the limit", "p50", { atMostOfLimit: 1.5 }, "p50"),
      latency("start + exit of /bin/true, p99", "p99"),
    ]),
    limits: ["start-limit"],
  },
  plain("spawn-tty", ["spawn", "n=50", "tty=1"], 3, [latency("start + exit in a terminal, p50", "p50")]),
  plain("spawn-delayed-ack", ["spawn", "n=30", "quickack=0"], 3, [
    latency("start + exit, client without quick ACK, p50", "p50"),
  ]),
  plain("spawn-rate-1", ["spawn-rate", "n=300", "connections=1"], 7, [
    rate("starts per second, 32 at once, 1 connection", { atLeast: 10 }),
  ]),
  plain("spawn-rate-8", ["spawn-rate", "n=300", "connections=8"], 7, [
    rate("starts per second, 32 at once, 8 connections", { atLeast: 5 }),
  ]),
  output("head", "`head -c` of zeros", 3, { atLeast: 2.5 }, { atMost: 0.35 }),
  output("yes", "`yes`", 3, { atLeast: 1.7 }),
  output("dd", "`dd bs=64k`", 3),
  plain("output-pty", ["output", "kind=pty", `bytes=${32 * 1024 * 1024}`], 15, [
    throughput("terminal output, 32 MiB", { atLeast: 1 }, "pty"),
  ]),
  plain("output-lines", ["output", "kind=lines", "bytes=200000"], 15, [
    { ...latency("200,000 unbuffered lines", "ms", { atLeast: 1.2 }, "linesMs"), unit: "ms" },
    { label: "200,000 unbuffered lines: messages sent", key: "frames", unit: "", better: "lower" },
  ]),
  plain("echo-pty", ["echo", "tty=1", "n=2000"], 21, [
    latency("terminal echo round trip, p50", "p50", { atLeast: 1 }),
    latency("terminal echo round trip, p99", "p99", { atLeast: 1 }),
  ]),
  plain("echo-pipe", ["echo", "n=2000"], 21, [
    latency("pipe echo round trip, p50", "p50", { atLeast: 1 }),
    latency("pipe echo round trip, p99", "p99", { atLeast: 1 }),
  ]),
  plain("echo-delayed-ack", ["echo", "n=40", "quickack=0"], 3, [
    latency("pipe echo, client without quick ACK, p50", "p50"),
  ]),
  plain("upload-64k", ["upload", `bytes=${OUTPUT_BYTES}`], 3, [
    throughput("stdin upload, 64 KiB writes", { atLeast: 1.1 }),
    {
      label: "stdin upload, 64 KiB writes: server CPU",
      key: "serverCpu",
      unit: "s",
      better: "lower",
      asPart: true,
    },
  ]),
  plain("upload-256k", ["upload", `bytes=${OUTPUT_BYTES}`, "chunk=262144"], 3, [
    throughput("stdin upload, 256 KiB writes"),
  ]),
  {
    name: "idle-500",
    rounds: 3,
    fresh: true,
    metrics: [
      latency("500 idle processes: all started", "ms", { atLeast: 10 }),
      {
        label: "500 idle processes: server memory",
        key: "rss",
        unit: "MiB",
        better: "lower",
        target: { atMost: 1 },
      },
    ],
    async run({ client, server }) {
      let rss = 0;
      const measured = await runClient(client, ["idle", server.url, "n=500"], (phase) => {
        if (phase === "started") rss = server.rssMib();
      });
      return { ...measured, rss };
    },
  },
  {
    name: "idle-memory",
    rounds: 3,
    fresh: true,
    metrics: [{ label: "idle server memory", key: "rss", unit: "MiB", better: "lower", target: { atMost: 1.3 } }],
    async run({ client, server }) {
      let rss = 0;
      // Measured after the first client and before the first process, so that lazy loading does not hide memory.
      await runClient(client, ["idle", server.url, "n=0"], async (phase) => {
        if (phase !== "started") return;
        await new Promise((resolve) => setTimeout(resolve, 1000));
        rss = server.rssMib();
      });
      return { rss };
    },
  },
  plain(
    "conns-200",
    ["echo-many", "connections=200", "ms=3000"],
    3,
    [
      rate("200 connections, each echoing: round trips/s", { atLeast: 1 }),
      latency("200 connections, each echoing, p99", "p99"),
    ],
    true,
  ),
  plain(
    "flood-spawn",
    ["flood", "what=spawn", "n=60"],
    7,
    [
      latency("start + exit while another process floods, p50", "p50", { atLeast: 3 }),
      latency("start + exit while another process floods, p99", "p99"),
    ],
    true,
  ),
  plain(
    "flood-echo",
    ["flood", "what=echo", "n=3000"],
    7,
    [
      latency("pipe echo while another process floods, p50", "p50", { atLeast: 1 }),
      latency("pipe echo while another process floods, p99", "p99"),
      floodMeanwhile("the flood meanwhile, on its own connection", 1.5),
    ],
    true,
  ),
  plain(
    "flood-same-spawn",
    ["flood", "what=spawn", "n=60", "same=1"],
    3,
    [
      latency("start + exit while another process floods the same connection, p50", "p50", { atLeast: 1 }),
      latency("start + exit while another process floods the same connection, p99", "p99"),
    ],
    true,
  ),
  plain(
    "flood-same-echo",
    ["flood", "what=echo", "n=3000", "same=1"],
    7,
    [
      latency("pipe echo while another process floods the same connection, p50", "p50", { atLeast: 1 }),
      latency("pipe echo while another process floods the same connection, p99", "p99"),
      floodMeanwhile("the flood meanwhile, on the same connection", 2.5),
    ],
    true,
  ),
  {
    name: "stalled-reader",
    rounds: 3,
    fresh: true,
    metrics: [
      {
        label: "memory peak, client not reading",
        key: "rss",
        unit: "MiB",
        better: "lower",
        target: { atMost: 1 },
      },
      {
        label: "process ended by a client not reading",
        key: "terminateMs",
        unit: "ms",
        negative: "not within 4 s",
        better: "lower",
      },
    ],
    async run({ client, server }) {
      let rss = 0;
      const measured = await runClient(client, ["slow-reader", server.url], async () => {
        for (let look = 0; look < 40; look++) {
          await new Promise((resolve) => setTimeout(resolve, 50));
          rss = Math.max(rss, server.rssMib());
        }
      });
      return { ...measured, rss };
    },
  },
  ...memoryScenarios,
  {
    name: "startup",
    rounds: 11,
    metrics: [
      {
        label: "exec to first `initialize` answer",
        key: "ms",
        unit: "ms",
        better: "lower",
        target: { atMost: 3 },
      },
      {
        label: "exec to the line that says where it listens",
        key: "listeningMs",
        asPart: true,
        unit: "ms",
        better: "lower",
      },
    ],
    run: ({ client, kind }) => runClient(client, ["startup", ...kind.command], undefined, kind.env),
  },
  commandTimes,
];

function plain(name: string, argv: string[], rounds: number, metrics: Metric[], fresh = false): Scenario {
  const [scenario = "", ...options] = argv;
  return {
    name,
    rounds,
    metrics,
    fresh,
    async run({ client, server }) {
      const before = server.cpuSeconds();
      const measured = await runClient(client, [scenario, server.url, ...options]);
      const serverCpu = server.cpuSeconds() - before;
      const perGib = measured.gib ? { cpuPerGib: serverCpu / measured.gib } : {};
      return { ...measured, serverCpu, ...perGib };
    },
  };
}

function output(
  kind: string,
  label: string,
  rounds: number,
  target?: Metric["target"],
  cpuTarget?: Metric["target"],
): Scenario {
  return plain(`output-${kind}`, ["output", `kind=${kind}`, `bytes=${OUTPUT_BYTES}`], rounds, [
    throughput(`output of one process, ${label}`, target, kind),
    {
      label: `output of one process, ${label}: server CPU per GiB`,
      key: "cpuPerGib",
      unit: "s",
      better: "lower",
      asPart: true,
      ...(cpuTarget && { target: cpuTarget }),
    },
  ]);
}

function latency(label: string, key: string, target?: Metric["target"], limit?: string): Metric {
  return { label, key, unit: "ms", better: "lower", ...(target && { target }), ...(limit && { limit }) };
}

function floodMeanwhile(label: string, atLeast: number): Metric {
  return { label, key: "floodMibPerSecond", unit: "MiB/s", better: "higher", target: { atLeast } };
}

function rate(label: string, target?: Metric["target"]): Metric {
  return { label, key: "perSecond", unit: "/s", better: "higher", ...(target && { target }) };
}

function throughput(label: string, target?: Metric["target"], limit?: string): Metric {
  return {
    label,
    key: "mibPerSecond",
    unit: "MiB/s",
    better: "higher",
    ...(target && { target }),
    ...(limit && { limit }),
  };
}
