// Checks the supervisor's guarantees: processes write numbered lines while their server is killed and replaced at
// random moments and clients read and write. The script counts every line, write and exit; a missing one without a
// reported gap is a loss.
//
//   npm run stress:supervisor -- --processes 500 --kills 20 --handoffs 20 --upgrades 5 --clients 20
//   npm run stress:supervisor -- --last-bytes 200        kill -9 while a process writes its last bytes and exits
//   npm run stress:supervisor -- --supervisor-kills 200  kill -9 of the supervisor alone
//   npm run stress:supervisor -- --all-kills 200         kill -9 of the supervisor, the server and both watchdogs at once
//   npm run stress:supervisor -- --reloads 200           repeated handoffs with clients that connect continuously
import { parseArgs } from "node:util";
import type { ExecServerClient } from "../../src/client/exec-server-client.ts";
import type { ExecProcess } from "../../src/exec/exec-process.ts";
import { isAlive, scratchDirectory } from "../../test/support/servers/serve.ts";
import { installSupervisor, persistentParams, SupervisedServer } from "../../test/support/servers/supervised-server.ts";
import { until } from "../../test/support/system/until.ts";

export interface StressOptions {
  processes: number;
  kills: number;
  handoffs: number;
  /** Handoffs that also replace the supervisor. */
  upgrades: number;
  clients: number;
}

export interface StressResult {
  processesLost: number;
  /** Lines that are missing or duplicated without a reported gap. */
  linesLostSilently: number;
  gapsReported: number;
  writes: number;
  writesLostOrDoubled: number;
  handlesFailed: number;
  wrongExits: number;
  lines: number;
  /** Time from the loss of a server until the next server responds to a new client. */
  unservedMs: number[];
}

/** Every 25th process writes bulk output, which its reader pauses most of the time. */
const BULK_EVERY = 25;
/** Script that counts its input and prints numbered lines meanwhile. */
const COUNT_INPUT =
  '(i=0; while :; do i=$((i+1)); echo "tick $i"; sleep 3; done) & n=0; while read line; do n=$((n+1)); echo "got $n $line"; done; kill $!; exit 7';

/** One process, as its client sees it: its expected and its actual events. */
class FollowedProcess {
  readonly process: ExecProcess;
  readonly isBulk: boolean;
  readonly typed: string[] = [];
  readonly got: string[] = [];
  readonly ended: Promise<void>;
  readonly #result: StressResult;
  readonly #expected = new Map<string, number>();
  #rest = "";
  #afterGap = false;

  constructor(process: ExecProcess, isBulk: boolean, result: StressResult) {
    this.process = process;
    this.isBulk = isBulk;
    this.#result = result;
    this.ended = this.#follow();
  }

  async #follow(): Promise<void> {
    for await (const event of this.process.events({ lossless: true })) {
      if (event.type === "output") this.#onOutput(Buffer.from(event.chunk).toString("latin1"));
      if (event.type === "gap") this.#onGap();
      if (event.type === "failed") this.#result.handlesFailed++;
      if (event.type === "exited" && !this.isBulk && event.exitCode !== 7) this.#result.wrongExits++;
    }
  }

  #onGap(): void {
    this.#result.gapsReported++;
    this.#afterGap = true;
    this.#rest = "";
  }

  #onOutput(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    // The first line after a gap may be incomplete.
    if (this.#afterGap) lines.shift();
    for (const line of lines) this.#onLine(line.replace("\r", ""));
  }

  #onLine(line: string): void {
    const match = /^(?:(tick|got) )?(\d+)(?: (\S+))?$/.exec(line);
    // A terminal echoes the input.
    if (!match) return;
    const [, kind = "bulk", number, word] = match;
    if (kind === "bulk" && !this.isBulk) return;
    this.#result.lines++;
    const expected = (this.#expected.get(kind) ?? 0) + 1;
    if (Number(number) !== expected && !this.#afterGap) this.#result.linesLostSilently++;
    this.#expected.set(kind, Number(number));
    this.#afterGap = false;
    if (kind === "got" && word !== undefined) this.got.push(word);
  }

  async type(word: string): Promise<void> {
    this.typed.push(word);
    await this.process.write(new TextEncoder().encode(`${word}\n`));
  }
}

export async function stress({ processes, kills, handoffs, upgrades, clients }: StressOptions): Promise<StressResult> {
  const result: StressResult = {
    processesLost: 0,
    linesLostSilently: 0,
    gapsReported: 0,
    writes: 0,
    writesLostOrDoubled: 0,
    handlesFailed: 0,
    wrongExits: 0,
    lines: 0,
    unservedMs: [],
  };
  using directory = scratchDirectory();
  await using server = await SupervisedServer.upgradable(directory.path);
  const connected: ExecServerClient[] = [];
  for (let count = 0; count < clients; count++) connected.push(await server.connect());
  const all: FollowedProcess[] = [];
  for (let count = 0; count < processes; count++) {
    const client = connected[count % clients];
    if (!client) break;
    const isBulk = count % BULK_EVERY === 0;
    const tty = count % 2 === 1;
    const params = persistentParams(`p${count}`, isBulk ? "exec seq 1 1000000000" : COUNT_INPUT, { tty });
    all.push(new FollowedProcess(await client.start(params), isBulk, result));
  }
  const pids = all.map(({ process }) => process.pid);
  const typists = all.filter(({ isBulk }) => !isBulk);
  const over = new AbortController();
  const typing = connected.map(async (_, at) => {
    for (let word = 0; !over.signal.aborted; word++) {
      const one = typists[(at + word * clients) % typists.length];
      await one?.type(`w${at}-${word}`);
      result.writes++;
      await pause(20);
    }
  });
  const events = shuffled([
    ...Array(kills).fill("kill"),
    ...Array(handoffs).fill("handoff"),
    ...Array(upgrades).fill("upgrade"),
  ]);
  for (const event of events) {
    await pause(200 + Math.random() * 600);
    const former = await server.serverPid(pids);
    if (event === "upgrade") installSupervisor(directory.path);
    const from = performance.now();
    if (event === "kill") process.kill(former, "SIGKILL");
    else process.kill(server.supervisorPid, "SIGHUP");
    await until("the former server exits", () => !isAlive(former));
    await using newClient = await server.connect();
    await newClient.list();
    result.unservedMs.push(performance.now() - from);
  }
  over.abort();
  await Promise.all(typing);
  result.processesLost = all.filter(({ process }) => !isAlive(process.pid ?? 0)).length;
  await Promise.all(all.map(({ process, isBulk }) => (isBulk ? process.terminate() : process.closeStdin())));
  await Promise.all(all.map(({ ended }) => ended));
  for (const { typed, got } of typists)
    if (typed.join(" ") !== got.join(" "))
      result.writesLostOrDoubled += Math.max(1, Math.abs(typed.length - got.length));
  for (const client of connected) await client.close();
  return result;
}

/** Returns how many of `runs` runs ended with a wrong exit code. Expected: 0. */
export async function lastBytes(runs: number): Promise<number> {
  let wrong = 0;
  await using server = await SupervisedServer.start();
  await using client = await server.connect();
  for (let run = 0; run < runs; run++) {
    const script = "read go; i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; done; exit 42";
    const process = await client.start(persistentParams(`e${run}`, script, { tty: run % 2 === 1 }));
    await process.write(new TextEncoder().encode("go\n"));
    await pause(Math.random() * 3);
    await server.killServer([process.pid]);
    for await (const event of process.events())
      if (event.type === "failed" || (event.type === "exited" && event.exitCode !== 42)) wrong++;
  }
  return wrong;
}

/**
 * Returns how many processes were left after `runs` kills of the supervisor alone, or of all four programs at once.
 * Expected: 0; after a kill of all four only if a cgroup contains the processes or they have a tree tag.
 */
export async function supervisorKills(runs: number, killed: "supervisor" | "all" = "supervisor"): Promise<number> {
  let left = 0;
  for (let run = 0; run < runs; run++) {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const persistent = await client.start(persistentParams("p", "setsid sleep 300 & echo $!; wait"));
    await until("its child", async () => (await persistent.snapshot()).totalBytes > 1);
    const child = Number(Buffer.from((await persistent.snapshot()).stdout).toString());
    const all = [persistent.pid ?? 0, child, await server.serverPid([persistent.pid])];
    const programs = killed === "all" ? [...server.watchdogPids, server.supervisorPid, all.at(-1) ?? 0] : [];
    for (const pid of programs) process.kill(pid, "SIGSTOP");
    for (const pid of killed === "all" ? programs : [server.supervisorPid]) process.kill(pid, "SIGKILL");
    await server.serve.exited;
    // After a kill of all four, the sentinel ends the remaining processes a moment later.
    const haveExited = () => !all.some((pid) => isAlive(pid));
    if (killed === "all") await until("all processes exit", haveExited).catch(() => undefined);
    left += all.filter((pid) => isAlive(pid)).length;
  }
  return left;
}

/** Outcome of clients that connect and send requests continuously while one server replaces another. */
interface ReloadResult {
  connections: number;
  /** Failures to connect, and failures other than a session without persistent processes that ends with its server. */
  refused: string[];
  endedWithServer: number;
}

export async function reloads(runs: number): Promise<ReloadResult> {
  await using server = await SupervisedServer.start();
  const refused: string[] = [];
  let connections = 0;
  let endedWithServer = 0;
  let isDone = false;
  const workers = Array.from({ length: 4 }, async () => {
    while (!isDone) {
      try {
        await using client = await server.connect();
        await client.list();
      } catch (error) {
        if (/earlier generations left only their persistent processes/.test(String(error))) endedWithServer++;
        else refused.push(String(error));
      }
      connections++;
    }
  });
  for (let run = 0; run < runs; run++) {
    const former = await server.serverPid([]);
    process.kill(server.supervisorPid, "SIGHUP");
    await until("the next server", async () => !isAlive(former) && (await server.serverPid([])) !== former);
    await using client = await server.connect();
    await client.list();
  }
  isDone = true;
  await Promise.all(workers);
  return { connections, refused, endedWithServer };
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

function shuffled<T>(values: T[]): T[] {
  return values
    .map((value) => ({ value, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value);
}

function quantile(sorted: number[], share: number): number {
  return Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0);
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      processes: { type: "string", default: "0" },
      kills: { type: "string", default: "20" },
      handoffs: { type: "string", default: "20" },
      upgrades: { type: "string", default: "5" },
      clients: { type: "string", default: "20" },
      "last-bytes": { type: "string", default: "0" },
      "supervisor-kills": { type: "string", default: "0" },
      "all-kills": { type: "string", default: "0" },
      reloads: { type: "string", default: "0" },
    },
  });
  const number = (text: string) => Number.parseInt(text, 10);
  if (number(values.processes) > 0) {
    const { unservedMs, ...result } = await stress({
      processes: number(values.processes),
      kills: number(values.kills),
      handoffs: number(values.handoffs),
      upgrades: number(values.upgrades),
      clients: number(values.clients),
    });
    const sorted = unservedMs.toSorted((a, b) => a - b);
    console.log(
      JSON.stringify({
        ...result,
        unservedP50Ms: quantile(sorted, 0.5),
        unservedP99Ms: quantile(sorted, 0.99),
      }),
    );
  }
  if (number(values["last-bytes"]) > 0)
    console.log(
      JSON.stringify({
        runs: values["last-bytes"],
        wrongExits: await lastBytes(number(values["last-bytes"])),
      }),
    );
  if (number(values["supervisor-kills"]) > 0)
    console.log(
      JSON.stringify({
        runs: values["supervisor-kills"],
        left: await supervisorKills(number(values["supervisor-kills"])),
      }),
    );
  if (number(values["all-kills"]) > 0)
    console.log(
      JSON.stringify({
        runs: values["all-kills"],
        leftOfAll: await supervisorKills(number(values["all-kills"]), "all"),
      }),
    );
  if (number(values.reloads) > 0)
    console.log(JSON.stringify({ runs: values.reloads, ...(await reloads(number(values.reloads))) }));
}
