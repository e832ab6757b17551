import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { carryThroughCuts } from "../../support/faults/cut-pipe.ts";
import { LoopbackSshd, SKIP_WITHOUT_SSHD } from "../../support/servers/loopback-sshd.ts";
import { runCli, startCli } from "../../support/servers/run-cli.ts";
import { until } from "../../support/system/until.ts";

const OPTIONS = { timeout: 600_000, skip: SKIP_WITHOUT_SSHD };

describe("a host behind a real sshd", OPTIONS, () => {
  let sshd: LoopbackSshd;
  const pathBefore = process.env.PATH;
  before(async () => {
    sshd = await LoopbackSshd.start();
    process.env.PATH = sshd.path;
  });
  after(async () => {
    process.env.PATH = pathBefore;
    await sshd?.stop();
  });
  const cli = (...args: string[]) =>
    runCli(args, { cwd: sshd.place.directory, env: { PATH: sshd.path }, stdin: "typed\n" });

  test("runs a command like a local command, on a server that starts on demand", async () => {
    const words = ["--connect", sshd.url, "--wait", "20", "--", "sh", "-c", "cat; echo problem >&2; exit 7"];
    const { code, stdout, stderr } = await cli("run", ...words);
    assert.deepEqual([code, stdout, stderr], [7, "typed\n", "problem\n"]);
    const listed = await cli("ps", "--all", "--connect", sshd.url);
    assert.match(listed.stdout, /exit 7/);
  });

  test("loses and duplicates no output while its connection is killed twenty times, on either side", async () => {
    await using client = await NodeExecServerClient.connectWebSocket({ url: sshd.url });
    await carryThroughCuts(client, {
      bytes: 30_000_000,
      cuts: 20,
      opened: () => sshd.clients().length,
      cut: (number) => {
        const victims = number % 2 === 0 ? sshd.sessions() : sshd.clients().slice(-1);
        for (const pid of victims) process.kill(pid, "SIGKILL");
      },
    });
  });

  test("forwards ports, sockets and SOCKS5 like ssh, on a server that starts on demand", async (t) => {
    const service = createServer((socket) => socket.end("hello")).listen(0, "127.0.0.1");
    await once(service, "listening");
    t.after(() => service.close());
    const { port } = service.address() as AddressInfo;
    const there = join(sshd.place.directory, "there.sock");
    const here = join(sshd.place.directory, "here.sock");
    const running = startCli(
      [
        ...[
          "forward",
          "--connect",
          sshd.url,
          "-L",
          `0:127.0.0.1:${port}`,
          "-R",
          `${there}:127.0.0.1:${port}`,
          "-D",
          "0",
        ],
        ...["-L", `${here}:127.0.0.1:${port}`, "-R", `0:127.0.0.1:${port}`],
      ],
      { cwd: sshd.place.directory, env: { PATH: sshd.path } },
    );
    await until("all five listen", () => running.stderr.trim().split("\n").length === 5, running.ended);
    const lines = running.stderr.split("\n");
    const lineOf = (pattern: RegExp) => lines.find((line) => pattern.test(line)) ?? assert.fail(running.stderr);
    const [local, remote, socks] = [lineOf(/:\d+ forwards/), lineOf(/:\d+ on the server forwards/), lineOf(/SOCKS5/)];
    const portOf = (line: string) => Number(/127\.0\.0\.1:(\d+)/.exec(line)?.[1]);
    assert.equal(await text(connect(portOf(local), "127.0.0.1")), "hello");
    for (const socket of [there, here]) assert.equal(await text(connect(socket)), "hello");
    assert.equal(await text(connect(portOf(remote), "127.0.0.1")), "hello");
    const client = connect(portOf(socks), "127.0.0.1");
    client.write(Uint8Array.of(5, 1, 0, 5, 1, 0, 3, 9, ...Buffer.from("localhost"), port >> 8, port & 255));
    assert.match(await text(client), /hello$/);
    running.child.kill("SIGINT");
    assert.equal((await running.ended).code, 0);
  });

  test("reports ssh's own message when it cannot connect", async () => {
    const { code, stderr } = await cli("run", "--connect", "ssh://127.0.0.1:1", "--", "true");
    assert.equal(code, 125);
    assert.match(
      stderr,
      /^procwire run: ssh:\/\/127\.0\.0\.1:1: ssh: connect to host 127\.0\.0\.1 port 1: Connection refused/,
    );
  });

  test("gets a copy of procwire with --install, and only once", async (t) => {
    const bare = await LoopbackSshd.start({ isBare: true });
    t.after(() => bare.stop());
    const run = (...words: string[]) =>
      runCli(["run", "--connect", bare.url, "--wait", "20", "--install", ...words, "--", "sh", "-c", "echo $0 ran"], {
        cwd: bare.place.directory,
        env: { PATH: bare.path },
      });
    const prompted = await run();
    assert.equal(prompted.code, 125);
    assert.match(prompted.stderr, /there is no terminal; add --yes/);
    assert.deepEqual(readdirSync(bare.home), []);
    const copied = await run("--yes");
    assert.deepEqual([copied.code, copied.stdout], [0, "sh ran\n"], copied.stderr);
    const percentages = [...copied.stderr.matchAll(/^procwire: copied (\d+)%$/gm)].map(([, percent]) => percent);
    assert.deepEqual(percentages, ["25", "50", "75"]);
    const steps = copied.stderr.replace(/^procwire: copied \d+%\n/gm, "").split("\n");
    assert.match(steps[0] ?? "", /^procwire: copying \d+ MB to 127\.0\.0\.1:\d+:~\/\.local\/share\/procwire$/);
    assert.equal(steps[1], "procwire: copied; the host checks the copy");
    assert.match(steps[2] ?? "", /^procwire: installed procwire in 127\.0\.0\.1:\d+:~\/\.local\/share\/procwire$/);
    assert.deepEqual(steps.slice(3), [""]);
    const { ino, mtimeMs } = statSync(join(bare.home, ".local/share/procwire"));
    const again = await run("--yes");
    assert.deepEqual([again.code, again.stdout, again.stderr], [0, "sh ran\n", ""]);
    const after = statSync(join(bare.home, ".local/share/procwire"));
    assert.deepEqual([after.ino, after.mtimeMs], [ino, mtimeMs]);
    const programs = bare.place.serverPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
    assert.ok(programs.length > 0 && programs.every((words) => words.startsWith(`${bare.home}/.local/share/`)));
  });

  test("leaves no ssh process behind", async () => {
    await until("every connection is gone", () => sshd.sessions().length === 0);
  });
});
