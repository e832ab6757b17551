/**
 * Measures the cost of viewers for a driver: the echo time of a process that also writes bulk output, alone and with
 * 100 viewers that read all output. Short phases of both take turns on one server, in pairs whose order alternates. A
 * pair ends before the load of the machine changes, so its ratio shows the cost of the viewers. Prints the median of
 * all pairs.
 *
 *   node bench/viewers/run.ts [--viewers 100] [--pairs 60] [--echoes 30]
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { alignedTable } from "../report.ts";
import { ourKind, ServerUnderTest } from "../server-under-test.ts";

const { values: flags } = parseArgs({
  options: {
    viewers: { type: "string", default: "100" },
    pairs: { type: "string", default: "60" },
    echoes: { type: "string", default: "30" },
  },
});

/** Viewers in a separate process that read all output and parse nothing. */
class ViewerGroup {
  readonly #child: ReturnType<typeof fork>;

  private constructor(child: ReturnType<typeof fork>) {
    this.#child = child;
  }

  static async open(url: string, handle: string): Promise<ViewerGroup> {
    const child = fork(join(import.meta.dirname, "many-viewers.ts"), [url, handle, flags.viewers]);
    await once(child, "message");
    return new ViewerGroup(child);
  }

  /** Sends a command. Resolves to the number of bytes that all viewers received so far. */
  async send(command: "attach" | "detach" | "count"): Promise<number> {
    this.#child.send(command);
    const [bytes] = await once(this.#child, "message");
    return Number(bytes);
  }

  close(): void {
    this.#child.kill();
  }
}

class Phases {
  readonly times: number[] = [];
  /** The median of each phase. */
  readonly medians: number[] = [];
  seconds = 0;
  flood = 0;
  viewed = 0;
}

const phases = { alone: new Phases(), viewed: new Phases() };
await measure();
const rows = Object.entries(phases).map(([name, { times, seconds, flood, viewed }]) => {
  times.sort((a, b) => a - b);
  const rate = (bytes: number) => `${(bytes / 1024 / 1024 / seconds).toFixed(0)} MiB/s`;
  const at = (part: number) => `${percentile(times, part).toFixed(3)} ms`;
  return [name === "alone" ? "none" : flags.viewers, at(0.5), at(0.99), rate(flood), rate(viewed)];
});
console.log(alignedTable(["viewers", "echo p50", "echo p99", "bulk output", "sent to viewers"], rows));
const costs = phases.viewed.medians
  .map((viewed, pair) => (viewed / (phases.alone.medians[pair] ?? Number.NaN) - 1) * 100)
  .sort((a, b) => a - b);
const cost = (part: number) => `${percentile(costs, part).toFixed(1)}%`;
console.log(
  `${flags.viewers} viewers cost the driver's echo p50 ${cost(0.5)} (half of ${costs.length} pairs between ${cost(0.25)} and ${cost(0.75)}; target: below 10%)`,
);

async function measure(): Promise<void> {
  const kind = ourKind();
  // The session that starts the process expires immediately, so that only the driver reads the output.
  kind.command.push("--detached-session-ttl", "0");
  const server = await ServerUnderTest.start(kind);
  const handle = await startFlood(server.url);
  const viewers = await ViewerGroup.open(server.url, handle);
  try {
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const driver = await client.attach(handle, { role: "driver" });
    let flood = 0;
    let echoed: () => void = () => undefined;
    const reading = (async () => {
      for await (const event of driver.events({ lossless: true })) {
        if (event.type !== "output") continue;
        if (event.stream === "stderr") echoed();
        else flood += event.chunk.length;
      }
    })();
    const echo = async (): Promise<number> => {
      const { promise, resolve } = Promise.withResolvers<void>();
      echoed = resolve;
      const startedAt = performance.now();
      await driver.write(Buffer.from("x\n"));
      await promise;
      return performance.now() - startedAt;
    };
    const phase = async (isViewed: boolean): Promise<void> => {
      const into = isViewed ? phases.viewed : phases.alone;
      const viewedBefore = await viewers.send(isViewed ? "attach" : "count");
      for (let warm = 0; warm < 10; warm++) await echo();
      const [floodBefore, startedAt] = [flood, performance.now()];
      const times: number[] = [];
      for (let at = 0; at < Number(flags.echoes); at++) times.push(await echo());
      into.times.push(...times);
      into.medians.push(
        percentile(
          times.toSorted((a, b) => a - b),
          0.5,
        ),
      );
      into.seconds += (performance.now() - startedAt) / 1000;
      into.flood += flood - floodBefore;
      const viewedAfter = await viewers.send(isViewed ? "detach" : "count");
      if (isViewed) into.viewed += viewedAfter - viewedBefore;
    };
    for (let pair = 0; pair < Number(flags.pairs); pair++) {
      await phase(pair % 2 === 1);
      await phase(pair % 2 === 0);
    }
    await driver.terminate();
    await reading;
  } finally {
    viewers.close();
    await server.stop();
  }
}

/** Starts a process that writes bulk output to stdout and echoes its input on stderr. */
async function startFlood(url: string): Promise<string> {
  await using client = await NodeExecServerClient.connectWebSocket({ url });
  const { handle } = await client.start({
    processId: "flood",
    argv: ["/bin/sh", "-c", "yes & exec cat >&2"],
    cwd: "/",
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    pipeStdin: true,
    lifetime: "server",
  });
  if (handle === null) throw new Error("the server returned no handle");
  return handle;
}

function percentile(sorted: readonly number[], part: number): number {
  return sorted[Math.floor(sorted.length * part)] ?? 0;
}
