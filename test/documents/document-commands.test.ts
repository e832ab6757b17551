import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { report, startMockResponses } from "../support/models/mock-responses.ts";
import { BareHost } from "../support/servers/bare-host.ts";
import { ServeChild } from "../support/servers/serve.ts";
import { opensslMissing, TestAuthority } from "../support/system/certificates.ts";
import { DocumentTerminal, documentedCommands, quickStart } from "../support/system/document-commands.ts";
import { freePort } from "../support/system/free-port.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const CTRL_BRACKET = "\x1d";
const missing = opensslMissing();

/** Commands that need a terminal, a second terminal or another host. Only names and ports are replaced. */
describe("the commands of the documents, typed at a terminal", { timeout: 600_000 }, () => {
  for (const document of ["README.md", "docs/fanout.md"]) {
    test(`${document}: a fan-out over cities, with a model on this machine`, async () => {
      const mock = await startMockResponses((request) => report(request));
      try {
        await using terminal = new DocumentTerminal({ env: { OPENAI_BASE_URL: mock.url } });
        writeFileSync(join(terminal.directory, "cities.csv"), "name\nParis\nLima\n");
        const [key = "", fanout = "", ...rest] = documentedCommands(document, "fanout cities.csv");
        const ran = await terminal.type(`${key.replace("…", "a-key")}\n${fanout}`);
        assert.equal(ran.code, 0, ran.shown);
        assert.match(readFileSync(join(terminal.directory, "out.csv"), "utf8"), /Paris.*\n.*Lima/);
        for (const command of rest) {
          const listed = await terminal.type(command);
          assert.deepEqual([listed.code, /2\/2|2 of 2|completed/.test(listed.shown)], [0, true], listed.shown);
        }
      } finally {
        await mock.close();
      }
    });
  }

  test("README.md: the quick start, pasted into an interactive shell line by line and as a block", async () => {
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
    await using terminal = new DocumentTerminal();
    const block = quickStart().replaceAll("ws://127.0.0.1:7070", server.url);
    const shell = await terminal.shell();
    const screen: string[] = [];
    for (const line of block.split("\n")) {
      const { shown, code } = await shell.paste(line);
      assert.equal(code, 0, `${line}\n${shown}`);
      screen.push(shown);
    }
    assert.match(
      screen.join("\n"),
      /\nLinux [\s\S]*\nHELLO\n[\s\S]*\n24 200\n[\s\S]*\nmade\n[\s\S]*COMMAND[\s\S]*sleep 60/,
    );
    const other = await terminal.shell();
    const pasted = await other.paste(block, "bracketed");
    assert.equal(pasted.code, 0, pasted.shown);
    assert.match(pasted.shown, /\nLinux [\s\S]*\nHELLO\n24 200\n[a-z0-9]{12}\nmade\n/);
    rmSync("/tmp/procwire-os-release", { force: true });
  });

  test("docs/attach.md: every command about a process", async () => {
    await using terminal = new DocumentTerminal({
      programs: { make: "echo making; trap 'exit 0' TERM; while :; do sleep 0.05; done" },
    });
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], {
      env: { PATH: terminal.path },
    }).listening();
    const commands = documentedCommands("docs/attach.md", "procwire attach");
    let handle = "";
    const typed = (words: string) => {
      const command = commands.find((one) => one.startsWith(`procwire ${words}`));
      assert.ok(command !== undefined, words);
      commands.splice(commands.indexOf(command), 1);
      return command.replaceAll("URL", server.url).replaceAll("k3v7", handle.slice(0, 6));
    };
    const started = await terminal.type(typed("run"));
    handle = started.shown.trim();
    assert.match(handle, /^[a-z0-9]{12}$/, started.shown);
    assert.match((await terminal.type(typed("ps"))).shown, /make/);
    for (const words of ["attach --connect URL --view", "attach"])
      assert.match((await terminal.type(typed(words), ["making", CTRL_BRACKET])).shown, /making/);
    await (await terminal.begin(typed("logs"), "making")).interrupt();
    assert.match((await terminal.type(typed("share"))).shown, /^http:.*#share=/);
    await (await terminal.begin(typed("record --connect"), "Ctrl-C ends the recording")).interrupt();
    assert.match(readFileSync(join(terminal.directory, "now.cast"), "utf8"), /"version":3.*"command":"make"/);
    const exported = typed("export");
    const ended = await terminal.type(typed("kill"));
    assert.equal(ended.code, 0, ended.shown);
    assert.equal((await terminal.type(exported)).code, 0);
    assert.match(readFileSync(join(terminal.directory, "out.cast"), "utf8"), /making/);
    const recorded = await terminal.type(typed("record"), [/[$#] $/, "echo recor''ded; exit\r"]);
    assert.equal(recorded.code, 0, recorded.shown);
    const replayed = await terminal.type(typed("replay"));
    assert.match(replayed.shown, /recorded/);
    assert.match((await terminal.type(typed("doctor"))).shown, /addon|spawner/);
    assert.deepEqual(commands, [], "every command was typed");
  });

  test("docs/processes.md: a named process, its list, its lines and its exit code", async () => {
    await using terminal = new DocumentTerminal({ programs: { make: "echo made" } });
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], {
      env: { PATH: terminal.path },
    }).listening();
    const commands = documentedCommands("docs/processes.md", "--name api");
    const [run = "", list = "", logs = "", wait = "", ...more] = commands.map(
      (command) => `PROCWIRE_CONNECT=${server.url} ${command}`,
    );
    assert.deepEqual(more, []);
    const started = await terminal.type(run);
    assert.match(started.shown, /^[a-z0-9]{12}\n$/);
    assert.match((await terminal.type(list)).shown, /HANDLE +NAME +STATE +AGE +OWNER/);
    assert.equal((await terminal.type(wait)).code, 0);
    assert.match((await terminal.type(logs)).shown, /^\d{4}-\S+Z made\n$/);
  });

  test("docs/persistent-processes.md: a supervised server and a persistent process", async () => {
    await using terminal = new DocumentTerminal({ programs: { make: "echo made" } });
    const commands = documentedCommands("docs/persistent-processes.md", "serve --supervised");
    const [serveIt = "", run = "", ...more] = commands.map((command) =>
      command.replaceAll("/run/procwire/procwire.sock", join(terminal.directory, "procwire.sock")),
    );
    assert.deepEqual(more, []);
    const server = await terminal.begin(serveIt, /unix:.*procwire\.sock/);
    const ran = await terminal.type(run);
    assert.match(ran.shown, /^[a-z0-9]{12}\n$/);
    await server.interrupt();
  });

  test("docs/operate.md: a server behind TLS", {
    skip: skipUnless(missing === null, missing ?? ""),
  }, async () => {
    await using terminal = new DocumentTerminal({ programs: { make: 'echo "made $1"' } });
    const authority = new TestAuthority(terminal.directory);
    const { cert, key } = authority.issue("DNS:localhost");
    const inTerminal = (name: string) => join(terminal.directory, name);
    mkdirSync(inTerminal("secrets"), { mode: 0o700 });
    copyFileSync(authority.caFile, inTerminal("ca.pem"));
    copyFileSync(cert, inTerminal("cert.pem"));
    copyFileSync(key, inTerminal("secrets/key.pem"));
    for (const name of ["token", "secrets/token"])
      writeFileSync(inTerminal(name), `${"t".repeat(40)}\n`, { mode: 0o600 });
    const port = String(await freePort());
    const [serveIt = "", run = "", ...more] = documentedCommands("docs/operate.md", "--tls-cert").map((command) =>
      command.replaceAll("7443", port).replaceAll("build.example", "localhost").replace("0.0.0.0", "127.0.0.1"),
    );
    assert.deepEqual(more, []);
    const server = await terminal.begin(serveIt, /wss:\/\//);
    const ran = await terminal.type(run);
    assert.deepEqual([ran.code, ran.shown], [0, "made test\n"]);
    await server.interrupt();
  });

  test("docs/forward.md: every kind of port forward", async () => {
    const web = createServer((_, answer) => answer.end("from the port")).listen(0, "127.0.0.1");
    await new Promise((resolve) => web.once("listening", resolve));
    const target = String((web.address() as AddressInfo).port);
    try {
      await using terminal = new DocumentTerminal({
        programs: {
          npm: `exec '${process.execPath}' -e 'require("http").createServer((_, a) => a.end("auto")).listen(0, "127.0.0.1", function () { console.log("serves on " + this.address().port) })'`,
        },
      });
      const [port, here, own] = [String(await freePort()), String(await freePort()), String(await freePort())];
      const [loopback = "", listed = "", same = "", other = "", back = "", auto = "", ...more] = documentedCommands(
        "docs/forward.md",
        "--allow-forward",
      ).map((command) => command.replaceAll("7070", port));
      assert.deepEqual(more, []);
      const get = async (from: string) => (await fetch(`http://127.0.0.1:${from}/`)).text();
      const first = await terminal.begin(loopback, /ws:\/\//);
      // Server and client are one machine here, so port 8080 is already in use and the client opens another port.
      const forwarded = await terminal.begin(same.replace(" 8080", ` ${here}:localhost:${target}`), here);
      assert.equal(await get(here), "from the port");
      await forwarded.interrupt();
      const remote = await terminal.begin(back.replace("9000:localhost:3000", `${own}:localhost:${target}`), own);
      assert.equal(await get(own), "from the port");
      await remote.interrupt();
      const running = await terminal.begin(auto, "serves on");
      await running.interrupt();
      await first.interrupt();
      const second = await terminal.begin(listed.replace("db.internal:5432", `localhost:${target}`), /ws:\/\//);
      const database = await terminal.begin(
        other.replace("5432:db.internal:5432", `${here}:localhost:${target}`),
        here,
      );
      assert.equal(await get(here), "from the port");
      await database.interrupt();
      await second.interrupt();
    } finally {
      web.closeAllConnections();
      web.close();
    }
  });

  test("docs/remote-hosts.md: an ssh host without and with procwire, and a pod behind kubectl", async () => {
    await using host = new BareHost();
    writeFileSync(join(host.programs, "make"), '#!/bin/sh\necho "made $1"\n', { mode: 0o755 });
    symlinkSync("/bin/bash", join(host.programs, "bash"));
    await using terminal = new DocumentTerminal({ env: { PATH: host.path } });
    const [install = "", ...others] = documentedCommands("docs/remote-hosts.md", "--install");
    assert.deepEqual(others, []);
    const installed = await terminal.type(install, ["[y/N] ", "y\r"]);
    assert.match(installed.shown, /made test\n$/);
    const [make = "", shell = "", pod = "", ...more] = documentedCommands("docs/remote-hosts.md", "kubectl");
    assert.deepEqual(more, []);
    assert.deepEqual(await terminal.type(make), { shown: "made test\n", code: 0 });
    const typed = await terminal.type(shell, [/[$#] $/, "echo $((6 * 7)); exit 3\r"]);
    assert.deepEqual([typed.code, typed.shown.includes("42")], [3, true], typed.shown);
    assert.deepEqual(await terminal.type(pod), { shown: "made test\n", code: 0 });
  });
});
