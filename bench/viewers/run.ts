/**
 * What viewers cost a driver: the echo of a process that also floods, with nobody else and with 100 viewers that take all
 * they are told. Only the ratio says something; both are measured in turns on the same machine.
 *
 *   node bench/viewers/run.ts [--viewers 100] [--rounds 5] [--echoes 300]
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ExecServerClient } from "../../src/client/node/socket-client.ts";
import { alignedTable, median } from "../report.ts";
import { ourKind, ServerUnderTest } from "../server-under-test.ts";

const { values: flags } = parseArgs({
  options: {
    viewers: { type: "string", default: "100" },
    rounds: { type: "string", default: "5" },
    echoes: { type: "string", default: "300" },
  },
});
/** Viewers in a program of their own, which take what they are told and look at nothing. */
class Crowd {
  readonly #child: ReturnType<typeof fork>;

  private constructor(child: ReturnType<typeof fork>) {
    this.#child = child;
  }

  static async open(url: string, handle: string, viewers: number): Promise<Crowd> {
    const child = fork(join(import.meta.dirname, "crowd.ts"), [url, handle, String(viewers)]);
    await once(child, "message");
    return new Crowd(child);
  }

  async bytes(): Promise<number> {
    this.#child.send("bytes");
    const [bytes] = await once(this.#child, "message");
    return Number(bytes);
  }

  close(): void {
    this.#child.kill();
  }
}

const kind = ourKind();
// The session that starts it is gone at once, so that nobody but the driver takes the output.
kind.command.push("--detached-session-ttl", "0");

interface Round {
  p50: number;
  p99: number;
  floodMibPerSecond: number;
  viewedMibPerSecond: number;
}

const found = new Map<number, Round[]>();
for (let round = 0; round < Number(flags.rounds); round++)
  for (const viewers of [0, Number(flags.viewers)]) {
    const measured = await measure(viewers);
    found.set(viewers, [...(found.get(viewers) ?? []), measured]);
    console.error(`${viewers} viewers`, measured);
  }

const of = (viewers: number, key: keyof Round) =>
  median((found.get(viewers) ?? []).map((one) => one[key])) ?? 0;
const rows = [...found.keys()].map((viewers) => [
  `${viewers} viewers`,
  ...(["p50", "p99"] as const).map((key) => `${of(viewers, key).toFixed(3)} ms`),
  ...(["floodMibPerSecond", "viewedMibPerSecond"] as const).map(
    (key) => `${of(viewers, key).toFixed(0)} MiB/s`,
  ),
]);
const header = ["", "echo p50", "echo p99", "the flood", "told to all viewers"];
console.log(alignedTable(header, rows));
const cost = of(Number(flags.viewers), "p50") / of(0, "p50") - 1;
console.log(
  `${flags.viewers} viewers cost the driver's echo p50 ${(cost * 100).toFixed(1)}% (target: less than 10%)`,
);

async function measure(viewers: number): Promise<Round> {
  const server = await ServerUnderTest.start(kind);
  try {
    const handle = await startFlood(server.url);
    await using client = await ExecServerClient.connectWebSocket({ url: server.url });
    const driver = await client.attach(handle, { role: "driver" });
    let [flood, isCounting] = [0, false];
    let echoed: () => void = () => undefined;
    const reading = (async () => {
      for await (const event of driver.events({ lossless: true })) {
        if (event.type !== "output") continue;
        if (event.stream === "stderr") echoed();
        else if (isCounting) flood += event.chunk.length;
      }
    })();
    const crowd = viewers === 0 ? null : await Crowd.open(server.url, handle, viewers);
    const echo = async (): Promise<number> => {
      const { promise, resolve } = Promise.withResolvers<void>();
      echoed = resolve;
      const began = performance.now();
      await driver.write(Buffer.from("x\n"));
      await promise;
      return performance.now() - began;
    };
    for (let warm = 0; warm < 20; warm++) await echo();
    isCounting = true;
    const viewedBefore = (await crowd?.bytes()) ?? 0;
    const began = performance.now();
    const times: number[] = [];
    for (let at = 0; at < Number(flags.echoes); at++) times.push(await echo());
    const seconds = (performance.now() - began) / 1000;
    const viewed = ((await crowd?.bytes()) ?? 0) - viewedBefore;
    isCounting = false;
    crowd?.close();
    await driver.terminate();
    await reading;
    times.sort((a, b) => a - b);
    const at = (part: number) => times[Math.floor(times.length * part)] ?? 0;
    const mib = (bytes: number) => bytes / 1024 / 1024 / seconds;
    return { p50: at(0.5), p99: at(0.99), floodMibPerSecond: mib(flood), viewedMibPerSecond: mib(viewed) };
  } finally {
    await server.stop();
  }
}

/** It writes to stdout as fast as that is taken, and repeats its input on stderr. */
async function startFlood(url: string): Promise<string> {
  await using client = await ExecServerClient.connectWebSocket({ url });
  const { handle } = await client.start({
    processId: "flood",
    argv: ["/bin/sh", "-c", "yes & exec cat >&2"],
    cwd: "/",
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    pipeStdin: true,
    lifetime: "server",
  });
  if (handle === null) throw new Error("the server gives no handle");
  return handle;
}
