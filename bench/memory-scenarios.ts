/** Scenarios that measure the resident memory of a server during a load, and after its clients have disconnected. */
import { runClient } from "./native-client.ts";
import type { Metric, Scenario } from "./scenarios.ts";
import type { ServerUnderTest } from "./server-under-test.ts";

const SAMPLE_INTERVAL_MS = 50;
/** Sessions and their processes end 30 s after the last connection. */
const AFTER_SESSIONS_MS = 40_000;
const RETAINED_BYTES = 64 * 1024;

export const memoryScenarios: Scenario[] = [
  {
    name: "memory-load",
    rounds: 1,
    fresh: true,
    metrics: [
      memory("500 connections with 4 processes, 240,000 echoes, 15 s at full speed: peak memory", "peak"),
      memory("the same, 40 s after the last client disconnected", "after"),
    ],
    async run({ client, server }) {
      const peak = await peakDuring(server, () => runClient(client, ["echo-load", server.url]));
      await new Promise((resolve) => setTimeout(resolve, AFTER_SESSIONS_MS));
      return { peak, after: server.rssMib() };
    },
  },
  {
    name: "memory-slow-reader",
    rounds: 3,
    fresh: true,
    metrics: [memory("1 GiB of output to a slow reader: peak memory", "peak")],
    run: async ({ client, server }) => ({
      peak: await peakDuring(server, () => runClient(client, ["paced-reader", server.url])),
    }),
  },
  {
    name: "memory-retained",
    rounds: 3,
    fresh: true,
    oursFlags: ["--retained-output-bytes", String(RETAINED_BYTES)],
    metrics: [memory("150 ended processes with 2.2 MB of output, retention 64 KiB: growth", "growth")],
    async run({ client, server }) {
      let [before, after] = [0, 0];
      await runClient(client, ["retained", server.url], (phase) => {
        if (phase === "before") before = server.rssMib();
        else after = server.rssMib();
      });
      return { growth: after - before };
    },
  },
];

function memory(label: string, key: string): Metric {
  return { label, key, unit: "MiB", better: "lower", target: { atMost: 1 } };
}

async function peakDuring(server: ServerUnderTest, run: () => Promise<unknown>): Promise<number> {
  let peak = server.rssMib();
  const sampling = setInterval(() => {
    peak = Math.max(peak, server.rssMib());
  }, SAMPLE_INTERVAL_MS);
  await run().finally(() => clearInterval(sampling));
  return peak;
}
