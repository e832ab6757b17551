/** Names, labels and lists of the processes of a server, with the real program. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { selectProcess } from "../../src/cli/support/find-process.ts";
import { parseProcessFilter } from "../../src/cli/support/process-filter.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { ProcessListing } from "../../src/exec/exec-process.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { type RunningServer, startServer } from "../contract/backends.ts";
import { CuttingProxy } from "../support/faults/cutting-proxy.ts";
import { type CliEnd, ENTRY, runCli, startCli } from "../support/servers/run-cli.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

const TIMEOUT = { timeout: 600_000 };
const needsTerminals = skipUnless(loadAddon().type === "loaded", "terminals need the addon");

let server: RunningServer;
let client: NodeExecServerClient;
before(async () => {
  server = await startServer("ws://127.0.0.1:0");
  client = await NodeExecServerClient.connectWebSocket({ url: server.url });
});
after(async () => {
  await client.close();
  await server.stop();
});

const cli = (...args: string[]): Promise<CliEnd> =>
  runCli(args, { cwd: "/tmp", env: { PROCWIRE_CONNECT: server.url } });

const START = { cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: false, lifetime: "server" } as const;

/** Starts a process with a name. The server lists it for a while after its exit. Returns its handle. */
async function start(name: string, script: string, labels: Record<string, string> = {}): Promise<string> {
  const argv = ["/bin/sh", "-c", script];
  const { handle } = await client.start({ ...START, processId: name, argv, name, labels });
  return handle ?? "";
}

const listing = (more: Partial<ProcessListing>): ProcessListing => ({
  ...{ processId: "p", argv: ["x"], cwd: "/", tty: false, pid: 1, running: true, exitCode: null, signal: null },
  ...{ startedAtMs: 0, outputBytes: 0 },
  ...more,
});

describe("a named process", TIMEOUT, () => {
  test("is found by its name, listed with its labels, and filtered by both", async () => {
    const labelled = ["--name", "api", "--label", "team=x", "--label", "canary"];
    const started = await cli("run", "--detach", ...labelled, "--", "sleep", "300");
    assert.equal(started.code, 0, started.stderr);
    const api = started.stdout.trim();
    const other = await start("web", "exec sleep 301", { team: "y" });
    const taken = await cli("run", "--detach", "--name", "api", "--", "true");
    assert.deepEqual(
      [taken.code, taken.stderr],
      [
        125,
        `procwire run: --name: name \`api\` is in use by process ${api}; end that process, or choose another name\n`,
      ],
    );
    const handles = async (...args: string[]) => (await cli("ps", "--quiet", ...args)).stdout.trim().split("\n");
    assert.deepEqual(await handles("--filter", "name=eb", "--filter", "command=sleep 301"), [other]);
    const json = (await cli("ps", "--json", "api", "--filter", "label=team=x")).stdout;
    const { name, labels, principal } = JSON.parse(json);
    assert.deepEqual(
      { name, labels, principal },
      { name: "api", labels: { team: "x", canary: "" }, principal: "local" },
    );
    const killed = await cli("kill", "api", "nothing-there", "web", api);
    assert.deepEqual(
      [killed.code, killed.stderr],
      [1, "procwire kill: unknown handle or name nothing-there; `procwire ps --all` lists handles and names\n"],
    );
    assert.deepEqual((await handles("--filter", "state=exited", "--filter", "label=team")).sort(), [api, other].sort());
  });

  test("rejects a wrong name, label or filter with the rule", async () => {
    const named = await cli("run", "--detach", "--name", "My App", "--", "true");
    assert.deepEqual(
      [named.code, /^procwire run: --name: invalid name `My App`: expected /.test(named.stderr)],
      [2, true],
    );
    const filtered = await cli("ps", "--filter", "colour=red");
    assert.deepEqual(
      [filtered.code, filtered.stderr],
      [
        2,
        "procwire ps: invalid --filter `colour=red`; expected KEY=VALUE, where KEY is one of name, label, state, command, owner, lifetime; see `procwire ps --help`\n",
      ],
    );
  });
});

describe("procwire ps", TIMEOUT, () => {
  test("fits into the columns of the terminal", { skip: needsTerminals }, async () => {
    const long = "x".repeat(100);
    await using child = await client.start({
      ...{ processId: `long-${long}`, argv: ["sh", "-c", `read line # ${long}`], cwd: "/", env: {}, tty: false },
      ...{ pipeStdin: true, name: `name-${"y".repeat(50)}`, labels: { team: "x" } },
    });
    await using backend = createLocalBackend();
    for (const [cols, pattern] of [
      // A terminal without a size.
      [0, /^HANDLE +NAME +STATE +AGE +OWNER +PID +LIFETIME +OUTPUT +ID +LABELS +COMMAND\r\n(.*)\r\n/m],
      [14, /^HANDLE\r\n(.*)\r\n/m],
      [30, /^HANDLE +COMMAND\r\n(.*)\r\n/m],
      [51, /^HANDLE +NAME +STATE +COMMAND\r\n(.*)\r\n/m],
      [80, /^HANDLE +NAME +STATE +AGE +OWNER +COMMAND\r\n(.*)\r\n/m],
      [500, /^HANDLE +NAME +STATE +AGE +OWNER +PID +LIFETIME +OUTPUT +ID +LABELS +COMMAND\r\n(.*)\r\n/m],
    ] as const) {
      const terminal = await backend.start({
        ...{
          processId: `t${cols}`,
          argv: [process.execPath, ENTRY, "ps", "--connect", server.url, child.handle ?? ""],
        },
        ...{ cwd: "/", env: { PATH: process.env.PATH ?? "" }, tty: true, size: { rows: 24, cols } },
      });
      await waitFor(terminal, pattern);
      await terminal.wait();
      const text = Buffer.from((await terminal.snapshot()).terminal).toString();
      const [, row = ""] = pattern.exec(text) ?? [];
      assert.ok(row.length <= (cols || 500), row);
      assert.equal(row.includes(long), cols === 0 || cols === 500, row);
      if (cols === 80) assert.match(row, /^[a-z2-7]{12} {2}name-y+… {2}running {2}\d+s +local +sh -c 'read line #.*…$/);
    }
  });
});

describe("procwire wait", TIMEOUT, () => {
  test("exits with the exit code of the process, or with the first other than 0 of several", async () => {
    await start("good", "true");
    await start("bad", "exit 3");
    await start("worse", "kill -9 $$");
    const slow = await start("slow", "sleep 300");
    const bad = await cli("wait", "bad");
    assert.deepEqual([bad.code, bad.stdout, bad.stderr], [3, "", ""]);
    const several = await cli("wait", "good", "worse", "bad");
    assert.deepEqual([several.code, several.stdout.trim().split("\n").sort()], [137, ["bad 3", "good 0", "worse 137"]]);
    const timedOut = await cli("wait", "--timeout", "0.01", "slow");
    assert.deepEqual([timedOut.code, timedOut.stderr], [124, "procwire wait: slow still runs after 0.01 s\n"]);
    const unknown = await cli("wait", slow, "missing");
    assert.deepEqual([unknown.code, /unknown handle or name missing/.test(unknown.stderr)], [125, true]);
    await client.kill(slow);
  });
});

test("procwire wait survives a lost connection", TIMEOUT, async () => {
  const argv = ["/bin/sh", "-c", "read line; exit 4"];
  const process = await client.start({ ...START, processId: "cut", argv, name: "cut", pipeStdin: true });
  await using proxy = await CuttingProxy.to(server.url);
  const waiting = startCli(["wait", "--connect", proxy.url, "cut"], { cwd: "/tmp" });
  await until("the wait is attached", () => proxy.sawText('"role":"viewer"'));
  proxy.cut();
  await until("the wait has reconnected", () => proxy.connections === 2);
  await process.write(Buffer.from("\n"));
  const { code, stderr } = await waiting.ended;
  assert.deepEqual([code, stderr], [4, ""]);
});

describe("procwire logs", TIMEOUT, () => {
  test("selects lines by pattern and count, and starts each with its time, also while it follows", async () => {
    const script = 'printf "one\\n\\033[31merror two\\033[0m\\nerror"; read x; printf " three\\nfour\\nerror five"';
    const argv = ["/bin/sh", "-c", script];
    const process = await client.start({ ...START, processId: "logs", argv, pipeStdin: true, name: "logged" });
    await waitFor(process, /error$/);
    const matching = await cli("logs", "--grep", "^error", "--tail", "1", "logged");
    assert.equal(matching.stdout, "error");
    const timed = await cli("logs", "--timestamps", "--grep", "^error t", "--since", "1h", "logged");
    const [, time = "", rest] = /^(\S+) (.*)\n$/s.exec(timed.stdout) ?? [];
    assert.equal(rest, "\x1b[31merror two\x1b[0m");
    assert.equal(new Date(time).toISOString(), time);
    assert.equal((await cli("logs", "--since", "2099-01-01", "logged")).stdout, "");
    const following = startCli(["logs", "-f", "-t", "-g", "error", "logged"], {
      ...{ cwd: "/tmp", env: { PROCWIRE_CONNECT: server.url } },
    });
    await until("the earlier line", () => following.stdout.includes("error two"));
    await process.write(Buffer.from("\n"));
    const { stdout } = await following.ended;
    const lines = stdout.split("\n").map((line) => line.replace(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z /, "@"));
    assert.deepEqual(lines, ["@\x1b[31merror two\x1b[0m", "@error three", "@error five"]);
    const wrong = await cli("logs", "--grep", "(", "logged");
    assert.deepEqual([wrong.code, /^procwire logs: invalid --grep `\(`: /.test(wrong.stderr)], [2, true]);
  });
});

describe("the ID of a command", () => {
  const select = (id: string, ...processes: Partial<ProcessListing>[]) =>
    selectProcess(processes.map(listing), id).handle;

  test("is a handle, else a name, else a prefix of a handle", () => {
    const [handle, named] = [{ handle: "abcdefghijkl" }, { handle: "bbbbbbbbbbbb", name: "abcdefghijkl" }];
    assert.equal(select("abcdefghijkl", named, handle), "abcdefghijkl");
    assert.equal(select("abcd", { handle: "abcdefghijkl" }, { handle: "bbbbbbbbbbbb", name: "abcd" }), "bbbbbbbbbbbb");
    assert.equal(select("a", { handle: "abcdefghijkl", name: "a" }), "abcdefghijkl");
    assert.equal(select("abcd", handle), "abcdefghijkl");
  });

  test("is the live process of a name, else the process with the latest start", () => {
    const old = { handle: "a", name: "api", running: false, startedAtMs: 5 };
    const ended = { handle: "b", name: "api", running: false, startedAtMs: 9 };
    const live = { handle: "c", name: "api", startedAtMs: 1 };
    assert.equal(select("api", old, ended, live), "c");
    assert.equal(select("api", old, ended), "b");
  });

  test("is rejected with the candidates if it is ambiguous", () => {
    const [one, two] = [
      { handle: "aaaaaaaaaaaa", name: "api", principal: "alice" },
      { handle: "aaaabbbbbbbb", name: "api", principal: "bob" },
    ];
    assert.throws(() => select("api", one, two), {
      message: "api matches 2 processes: aaaaaaaaaaaa (api, alice), aaaabbbbbbbb (api, bob); give a handle",
    });
    assert.throws(() => select("aaaa", { handle: "aaaaaaaaaaaa" }, two), {
      message: "aaaa matches 2 processes: aaaaaaaaaaaa, aaaabbbbbbbb (api, bob); give more characters",
    });
    assert.equal(select("api", one, { ...two, running: false }), "aaaaaaaaaaaa");
  });
});

describe("ps --filter", () => {
  const matches = (filters: string[], more: Partial<ProcessListing>) =>
    parseProcessFilter(filters).matches(listing(more));

  test("requires all labels, and one value of each other key", () => {
    const labels = { team: "x", url: "a=b", empty: "" };
    assert.ok(matches(["label=team", "label=team=x", "label=url=a=b", "label=empty="], { labels }));
    assert.ok(!matches(["label=team=x", "label=team=y"], { labels }));
    assert.ok(!matches(["label=toString"], { labels }));
    assert.ok(matches(["name=a", "name=b", "state=running", "state=exited"], { name: "b" }));
    assert.ok(!matches(["name=a", "state=exited"], { name: "a" }));
    assert.ok(
      matches(["command=make test", "owner=bob", "lifetime=server", "status=exited"], {
        ...{ argv: ["/usr/bin/make", "test"], principal: "bob", lifetime: "server", running: false },
      }),
    );
  });

  test("rejects an unknown key, a missing value and an unknown state", () => {
    for (const text of ["", "name", "name=", "toString=x", "=x"])
      assert.throws(() => parseProcessFilter([text]), /invalid --filter/);
    assert.throws(() => parseProcessFilter(["state=dead"]), /expected state=running or state=exited/);
  });
});
