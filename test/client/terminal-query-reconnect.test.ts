/**
 * Terminal queries while the client's connection is cut hundreds of times: the process gets exactly one reply to each query.
 * It sends the next query after a reply. A surplus reply would therefore remain at the end, and a missing one would hang.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ExecServerClient as UniversalClient } from "../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { RemoteProcess } from "../../src/client/process/remote-process.ts";
import { QueryGate } from "../../src/exec/terminal/terminal-queries.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { seededRandom } from "../fanout/run/rate-simulation.ts";
import { CuttingProxy } from "../support/faults/cutting-proxy.ts";
import { FaultProxy } from "../support/faults/fault-proxy.ts";
import { PROCWIRE, scratchDirectory, serve } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

const skip = skipUnless(loadAddon().type === "loaded", "terminals need the addon");
const QUICK = { firstDelayMs: 2, maxDelayMs: 10 };
const QUERY = "\x1b[6n";

const queryScript = (queries: number) => `stty raw -echo; printf ready; read -r -d g
  for ((i = 1; i <= ${queries}; i++)); do
    printf 'question %d \\033[6n' $i
    read -r -d R -t 60 place || printf 'unanswered %d ' $i
  done
  printf 'last \\033[5n'; read -r -d n -t 60 status
  printf 'left <%q> done' "\${status#*\\[}"; read -r -d x`;

const program = (queries: number) => ({
  processId: "asks",
  argv: ["/bin/bash", "-c", queryScript(queries)],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin" },
  tty: true,
  terminalQueries: "claimed" as const,
});

/** A terminal that displays output and replies to each query in it. */
class ReplyingTerminal {
  answers = 0;
  shown = "";
  readonly #done = Promise.withResolvers<void>();
  /** The process has sent all its queries. */
  readonly done = this.#done.promise;

  async show(child: RemoteProcess): Promise<void> {
    const claim = child.claimQueries;
    assert.ok(claim);
    const gate = new QueryGate((seq) => claim(seq).catch(() => false));
    for await (const event of child.events()) {
      if (event.type !== "output") continue;
      const text = Buffer.from(await gate.push(event.chunk, event.seq)).toString("latin1");
      this.shown += text;
      if (DONE.test(this.shown)) this.#done.resolve();
      for (const _ of text.matchAll(/\x1b\[6n/g)) this.#type(child, "\x1b[7;7R");
      for (const _ of text.matchAll(/\x1b\[5n/g)) this.#type(child, "\x1b[0n");
    }
  }

  #type(child: RemoteProcess, text: string): void {
    this.answers++;
    // Rejected if another client has the session by now.
    child.write(Buffer.from(text)).catch(() => undefined);
  }
}

const DONE = /left <(.*)> done/;
/** The last line of the process: its last reply, which would contain surplus replies. */
const left = (shown: string) => DONE.exec(shown)?.[1];

describe("terminal queries of a process over a faulty connection", { skip, timeout: 600_000 }, () => {
  test("get one reply each, from the client's terminal or the server, while the connection is cut", async () => {
    await using server = await serve("--listen", "ws://127.0.0.1:0");
    await using proxy = await CuttingProxy.to(server.url);
    const queries = 400;
    await using client = await NodeExecServerClient.connectWebSocket({ url: proxy.url, reconnect: QUICK });
    const child = await client.start(program(queries));
    await waitFor(child, "ready");
    const terminal = new ReplyingTerminal();
    const showing = terminal.show(child);
    await child.write(Buffer.from("g"));
    const next = seededRandom(16);
    let [cuts, pieces] = [0, 0];
    let cutAfter = 3;
    proxy.onForward = () => {
      if (++pieces < cutAfter || DONE.test(terminal.shown)) return;
      pieces = 0;
      cutAfter = 2 + Math.floor(next() * 14);
      cuts++;
      // Cuts now, or after the client had time to reply.
      if (next() < 0.5) proxy.cut();
      else setImmediate(() => proxy.cut());
    };
    await terminal.done;
    proxy.onForward = () => undefined;
    assert.equal(left(terminal.shown), "0");
    assert.doesNotMatch(terminal.shown, /unanswered/);
    assert.ok(cuts > 50, `${cuts} cuts`);
    assert.ok(terminal.answers > 50, `${terminal.answers} answers of the terminal`);
    assert.ok(terminal.answers < queries, `${terminal.answers} answers of the terminal`);
    assert.equal(terminal.shown.split(QUERY).length - 1 <= terminal.answers, true);
    await child.terminate();
    await showing;
  });

  test("get one reply each while clients take over the session repeatedly", async () => {
    await using server = await serve("--listen", "ws://127.0.0.1:0");
    const queries = 300;
    const first = await NodeExecServerClient.connectWebSocket({ url: server.url, reconnect: QUICK });
    const child = await first.start(program(queries));
    await waitFor(child, "ready");
    const sessionId = first.sessionId ?? "";
    const terminals: ReplyingTerminal[] = [];
    const shows: Promise<void>[] = [];
    const show = (process: RemoteProcess) => {
      const terminal = new ReplyingTerminal();
      terminals.push(terminal);
      shows.push(terminal.show(process).catch(() => undefined));
      return terminal;
    };
    const clients: UniversalClient[] = [first];
    let terminal = show(child);
    await child.write(Buffer.from("g"));
    const next = seededRandom(7);
    while (!DONE.test(terminal.shown) && clients.length < 60) {
      const enough = 1 + Math.floor(next() * 8);
      const current = terminal;
      await until("some answers", () => current.answers >= enough || DONE.test(current.shown));
      if (DONE.test(current.shown)) break;
      const client = await NodeExecServerClient.connectWebSocket({
        url: server.url,
        reconnect: QUICK,
        resumeSessionId: sessionId,
        takeOver: true,
      });
      clients.push(client);
      terminal = show(await client.backend.attach("asks"));
    }
    const last = terminal;
    await last.done;
    assert.equal(left(last.shown), "0");
    assert.doesNotMatch(last.shown, /unanswered/);
    assert.ok(clients.length > 20, `${clients.length} clients`);
    for (const client of clients) await client.close();
    await Promise.all(shows);
  });

  test("get a reply from the server while `procwire run --tty` is disconnected, and none from its terminal later", async () => {
    await using server = await serve("--listen", "ws://127.0.0.1:0");
    await using proxy = await FaultProxy.before(server.url);
    using scratch = scratchDirectory();
    const script = `stty raw -echo; cd ${scratch.path}
      ask() { printf 'question %s \\033[6n' $1; read -r -d R -t 60 place || printf 'unanswered '; printf 'answered %s.' $1; }
      ask one; until [ -e away ]; do sleep 0.05; done; ask two; until [ -e back ]; do sleep 0.05; done; ask three
      printf 'last \\033[5n'; read -r -d n -t 60 status; printf 'left <%q> done' "\${status#*\\[}"`;
    writeFileSync(join(scratch.path, "asks"), script);
    const command = `${PROCWIRE} run --tty --connect ${proxy.url} -- bash ${scratch.path}/asks`;
    await using backend = createLocalBackend();
    // The local terminal, which replies to displayed queries.
    const terminal = await backend.start({
      processId: "terminal",
      argv: ["/bin/sh", "-c", command],
      cwd: "/",
      env: { PATH: process.env.PATH ?? "", TERM: "xterm", HOME: scratch.path },
      tty: true,
      terminalQueries: "server",
    });
    await waitFor(terminal, "answered one.");
    await using other = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const [{ handle } = { handle: "" }] = await other.backend.list({ allSessions: true });
    const watched = await other.attach(String(handle));
    await proxy.refuse();
    proxy.cut();
    await waitFor(terminal, "connection lost");
    writeFileSync(join(scratch.path, "away"), "");
    await waitFor(watched, "answered two.");
    await proxy.listenAgain();
    await waitFor(terminal, "answered two.");
    writeFileSync(join(scratch.path, "back"), "");
    await waitFor(terminal, DONE);
    const shown = Buffer.from((await terminal.snapshot()).terminal).toString();
    assert.equal(left(shown), "0");
    assert.doesNotMatch(shown, /unanswered/);
  });

  test("get a reply from the server if `procwire run --tty` has no local terminal", async () => {
    await using server = await serve("--listen", "ws://127.0.0.1:0");
    const script = "stty raw -echo; printf 'asked \\033[6n'; read -r -d R -t 20 x && printf answered";
    const args = ["run", "--tty", "--connect", server.url, "--", "bash", "-c", script];
    // Its input stays open and is not a terminal.
    const run = spawn(PROCWIRE, args, { stdio: ["pipe", "pipe", "inherit"] });
    const stdout = Buffer.concat(await run.stdout.toArray()).toString();
    // Output that is not displayed on a terminal is passed unchanged.
    assert.equal(stdout, `asked ${QUERY}answered`);
  });
});
