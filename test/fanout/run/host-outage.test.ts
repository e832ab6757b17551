import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { suite, test } from "node:test";
import { parse } from "csv-parse/sync";
import { rejectReconnect } from "../../support/faults/reject-reconnect.ts";
import {
  answer,
  functionCall,
  type MockHandler,
  type MockResponses,
  report,
  startMockResponses,
  toolOutputs,
} from "../../support/models/mock-responses.ts";
import { type CliRun, startCli } from "../../support/servers/run-cli.ts";
import { ServeChild } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";
import { catTable } from "../fanout-harness.ts";

const ROWS = 12;
const SLOTS = 4;

interface Setup {
  directory: string;
  mock: MockResponses;
  start(hosts: readonly ServeChild[], ...more: string[]): CliRun;
  rows(): Promise<Record<string, string>[]>;
}

async function withTable(handler: MockHandler, body: (setup: Setup) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), "procwire-hosts-"));
  const mock = await startMockResponses(handler);
  const runs: CliRun[] = [];
  try {
    await writeFile(path.join(directory, "cats.csv"), catTable(ROWS));
    await body({
      directory,
      mock,
      start: (hosts, ...more) => {
        const connect = hosts.flatMap(({ url }) => ["--connect", url]);
        const fanout = ["fanout", "cats.csv", "--instruction", "{name}", "--output", "out.csv", "--tools", "exec"];
        const args = [...fanout, "--concurrency", `${SLOTS}`, "--cwd", "/", ...connect, ...more];
        const run = startCli(args, { cwd: directory, env: { OPENAI_BASE_URL: mock.url } });
        runs.push(run);
        return run;
      },
      rows: async () => parse(await readFile(path.join(directory, "out.csv"), "utf8"), { columns: true }),
    });
  } finally {
    for (const run of runs) run.child.kill("SIGKILL");
    await Promise.all(runs.map((run) => run.ended));
    await mock.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** Shells on these hosts read no files of this user. */
const HOST = { env: { HOME: "/" } };

function startHost(directory: string, name = "host"): Promise<ServeChild> {
  return new ServeChild(["--listen", `unix://${directory}/${name}`], HOST).listening();
}

/** Kills the server itself without a shutdown; its parent process ends the rest. */
async function crash(host: ServeChild): Promise<void> {
  process.kill(host.serverPid(), "SIGKILL");
  await host.exited;
}

/** Starts the same server again at the same address. */
function restarted(host: ServeChild): Promise<ServeChild> {
  return new ServeChild(["--listen", host.url], HOST).listening();
}

const command = (cmd: string, more: object = {}) => answer(functionCall("cmd", "exec_command", { cmd, ...more }));

const done = (rows: readonly Record<string, string>[]) =>
  rows.map((row) => [row.status, row.attempt_count, row.result_json]);

const allDone = Array(ROWS).fill(["completed", "1", '{"said":true}']);

/** The agent runs a command for each row and reports whether it ran; the answers wait for the gate. */
function oneCommand(gate: Promise<void>): MockHandler {
  return async (request) => {
    const [said] = toolOutputs(request.body);
    if (said !== undefined) return report(request, { said: said.includes("meow") });
    await gate;
    return command("echo me''ow");
  };
}

suite("hosts of --connect that crash", { concurrency: 2 }, () => {
  test("are awaited, and a row without commands there repeats no model call", async () => {
    const gate = Promise.withResolvers<void>();
    await withTable(oneCommand(gate.promise), async ({ directory, mock, start, rows }) => {
      await using host = await startHost(directory);
      const run = start([host]);
      await until("all slots are busy", () => mock.inFlight === SLOTS, run.ended);
      await crash(host);
      gate.resolve();
      await rejectReconnect(host.url);
      await until(
        "the outage is reported",
        () => /^hosts: no host can run commands.*waiting/m.test(run.stderr),
        run.ended,
      );
      await using _back = await restarted(host);
      const { code, stderr } = await run.ended;
      assert.equal(code, 0, stderr);
      assert.deepEqual(done(await rows()), allDone);
      assert.equal(mock.requests.length, 2 * ROWS);
    });
  });

  test("restart a row with commands there without counting an attempt, and never report from dead tools", async () => {
    const gate = Promise.withResolvers<void>();
    let held = 0;
    const handler: MockHandler = async (request) => {
      const [first, second] = toolOutputs(request.body);
      if (first === undefined) return command("read -r line; echo me''ow", { tty: true, yield_time_ms: 250 });
      if (second !== undefined) return report(request, { said: second.includes("meow") });
      if (held++ < SLOTS) await gate.promise;
      const session = Number(/session ID (\d+)/i.exec(first)?.[1]);
      return answer(functionCall("in", "write_stdin", { session_id: session, chars: "go\n", yield_time_ms: 10_000 }));
    };
    await withTable(handler, async ({ directory, mock, start, rows }) => {
      await using host = await startHost(directory);
      const run = start([host]);
      await until("a command runs for each slot", () => held === SLOTS, run.ended);
      await crash(host);
      await using _back = await restarted(host);
      gate.resolve();
      const { code, stderr } = await run.ended;
      assert.equal(code, 0, stderr);
      assert.deepEqual(done(await rows()), allDone);
      assert.equal(mock.requests.length, 3 * ROWS + 2 * SLOTS);
    });
  });

  test("leave their rows to the other hosts", async () => {
    const gate = Promise.withResolvers<void>();
    await withTable(oneCommand(gate.promise), async ({ directory, mock, start, rows }) => {
      await using lost = await startHost(directory, "lost");
      await using other = await startHost(directory, "other");
      const run = start([lost, other]);
      await until("all slots are busy", () => mock.inFlight === SLOTS, run.ended);
      await crash(lost);
      gate.resolve();
      await rejectReconnect(lost.url);
      const { code, stderr } = await run.ended;
      assert.equal(code, 0, stderr);
      assert.deepEqual(done(await rows()), allDone);
      assert.equal(mock.requests.length, 2 * ROWS);
    });
  });

  test("pause the job before any model call if no host was available from the start", async () => {
    await withTable(
      (request) => report(request),
      async ({ directory, mock, start }) => {
        await using host = await startHost(directory);
        await crash(host);
        const { code, stderr } = await start([host]).ended;
        assert.equal(code, 1);
        assert.match(stderr, /^paused: 0 of 12 rows completed/m);
        assert.match(stderr, /^reason: no host can run commands: unix:/m);
        assert.equal(mock.requests.length, 0);
      },
    );
  });
});
