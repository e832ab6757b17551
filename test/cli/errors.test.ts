import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { userMessage } from "../../src/base/error-message.ts";
import { withConnectAdvice } from "../../src/host/connect-advice.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";
import { writeSecret } from "../support/auth/secret-file.ts";
import { runMain } from "../support/servers/run-main.ts";
import { ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";
import { freePort } from "../support/system/free-port.ts";

const TIMEOUT = { timeout: 600_000 };

describe("a command without a server", TIMEOUT, () => {
  test("names the address and the command that starts a server", async () => {
    using scratch = scratchDirectory();
    const port = await freePort();
    const socket = join(scratch.path, "none.sock");
    const address = `127.0.0.1:${port}`;
    const commands = [
      ["ps"],
      ["run", "--", "true"],
      ["attach", "abcd"],
      ["logs", "abcd"],
      ["kill", "abcd"],
      ["cp", "a", ":b"],
      ["forward", "8080"],
      ["share", "abcd"],
      ["replay", "abcd"],
      ["export", "abcd", "-"],
      ["record", "--force", join(scratch.path, "r.cast"), "--", "true"],
    ];
    const withUrl = (url: string) => commands.map(([name = "", ...rest]) => [name, "--connect", url, ...rest]);
    const options = { cwd: scratch.path };
    const overWebSocket = await runMain(withUrl(`ws://${address}`), options);
    const overSocket = await runMain(withUrl(`unix://${socket}`), options);
    for (const [index, [name = ""]] of commands.entries()) {
      const code = name === "run" || name === "record" ? 125 : 1;
      const by = `procwire ${name === "record" ? "run" : name}`;
      assert.deepEqual(
        [overWebSocket[index]?.code, overWebSocket[index]?.stderr],
        [code, `${by}: no procwire server at ${address}; start one with "procwire serve --listen ws://${address}"\n`],
      );
      assert.deepEqual(
        [overSocket[index]?.code, overSocket[index]?.stderr],
        [code, `${by}: no procwire server at ${socket}; start one with "procwire serve --listen unix://${socket}"\n`],
      );
    }
  });

  test("names `procwire start` for its address, and keeps code and cause of the error", () => {
    const refused = new ExecServerError("connect ECONNREFUSED 127.0.0.1:7070", "ECONNREFUSED");
    const advised = withConnectAdvice(refused, "ws://127.0.0.1:7070");
    assert.ok(advised instanceof ExecServerError);
    assert.equal(advised.message, 'no procwire server at 127.0.0.1:7070; start one with "procwire start"');
    assert.deepEqual([advised.code, advised.cause], ["ECONNREFUSED", refused]);
    const next = withConnectAdvice(refused, "ws://127.0.0.1:7071");
    assert.match(
      String(next),
      /at 127\.0\.0\.1:7071; start one with "procwire serve --listen ws:\/\/127\.0\.0\.1:7071"/,
    );
    const remote = withConnectAdvice(refused, "wss://build.example:7070");
    assert.match(
      String(remote),
      /at build\.example:7070; start one there with "procwire serve --listen ws:\/\/IP:PORT"/,
    );
    const other = new ExecServerError("reset", "ECONNRESET");
    assert.equal(withConnectAdvice(other, "ws://127.0.0.1:7070"), other);
  });

  test("names the socket that is missing behind a bridge", async () => {
    using scratch = scratchDirectory();
    const socket = join(scratch.path, "none.sock");
    const program = join(import.meta.dirname, "..", "..", "bin", "procwire");
    const [outcome] = await runMain([["ps", "--connect", `exec:${program} connect unix://${socket}`]], {
      cwd: scratch.path,
    });
    assert.equal(outcome?.code, 1);
    assert.ok(
      outcome.stderr.includes(`: no procwire server at ${socket}; start one with "procwire serve`),
      outcome.stderr,
    );
  });
});

describe("a command without a token", TIMEOUT, () => {
  test("names --token-file behind the answer of the server", async () => {
    await using server = await serve("--ws-auth", "auto");
    const [ps, run] = await runMain(
      [
        ["ps", "--connect", server.url],
        ["run", "--connect", server.url, "--", "true"],
      ],
      { cwd: "/" },
    );
    const expected = `${server.url} refused the websocket upgrade with HTTP 401: missing websocket bearer token; give the token of the server with --token-file PATH or PROCWIRE_TOKEN\n`;
    assert.deepEqual([ps?.code, ps?.stderr], [1, `procwire ps: ${expected}`]);
    assert.deepEqual([run?.code, run?.stderr], [125, `procwire run: ${expected}`]);
  });

  test("names a token file that it cannot read, not a missing server", async () => {
    await using server = await serve("--ws-auth", "auto");
    const [missing] = await runMain([["ps", "--connect", server.url, "--token-file", "/no/such/token"]], { cwd: "/" });
    const expected = "--token-file: ENOENT: no such file or directory, open '/no/such/token'";
    assert.deepEqual([missing?.code, missing?.stderr], [1, `procwire ps: ${expected}\n`]);
  });
});

describe("arguments", TIMEOUT, () => {
  test("of help never run as a command", async () => {
    using scratch = scratchDirectory();
    const [run, show] = await runMain(
      [
        ["help", "run", "touch", "made"],
        ["help", "jobs", "show", "3f2a"],
      ],
      { cwd: scratch.path },
    );
    assert.match(run?.stdout ?? "", /^Usage: procwire run /);
    assert.match(show?.stdout ?? "", /^Usage: procwire jobs show /);
    assert.equal(existsSync(join(scratch.path, "made")), false);
  });

  test("that are wrong are named in one line", async () => {
    const cases: [string[], string][] = [
      [
        ["logs", "--tail", "-1", "abcd"],
        "`--tail` requires a value; write `--tail=VALUE` if the value starts with a dash",
      ],
      [["kill", "-s", "-9", "abcd"], "`-s` requires a value; write `--signal=VALUE` if the value starts with a dash"],
      [["logs", "abcd", "--tail"], "`-n, --tail` requires a value"],
      [["record", "--force=yes", "x.cast", "--", "true"], "`--force` takes no value"],
      [["share", "--expires", "8d", "abcd"], "invalid --expires `8d`; expected more than 0 and at most 7d"],
      [["serve", "unix:///x"], "unexpected argument `unix:///x`"],
      [
        ["start", "--listen", "ws://127.0.0.1:1"],
        "unexpected argument `--listen`; use `procwire serve` for more options",
      ],
      [["kill", "--signal", "999", "abcd"], "unknown --signal `999`; expected a name such as TERM, or a number"],
      [["kill", "--signal", "foo", "abcd"], "unknown --signal `foo`; expected a name such as TERM, or a number"],
      [["kill", "--signal", "", "abcd"], "unknown --signal ``; expected a name such as TERM, or a number"],
      [["jobs", "list", "3f2a"], "unexpected argument `3f2a`"],
      [["jobs", "prune", "3f2a"], "unexpected argument `3f2a`"],
    ];
    const outcomes = await runMain(
      cases.map(([args]) => args),
      { cwd: "/" },
    );
    for (const [index, [[name = ""], message]] of cases.entries())
      assert.deepEqual(
        [outcomes[index]?.code, outcomes[index]?.stderr],
        [2, `procwire ${name}: ${message}; see \`procwire ${name} --help\`\n`],
      );
  });
});

describe("system errors", TIMEOUT, () => {
  test("have no number of the operating system in the output of the CLI", async () => {
    await using server = await serve();
    using scratch = scratchDirectory();
    const outcomes = await runMain(
      [
        ["run", "--", "/no/such/program"],
        ["run", "--connect", server.url, "--", "/no/such/program"],
        ["cp", "--connect", server.url, ":/no/such/file", join(scratch.path, "copy")],
        ["cp", "--connect", server.url, ":/no/such/file", "-"],
        ["cp", "--connect", server.url, ":/etc/hostname", "/no/such/directory/copy"],
      ],
      { cwd: "/" },
    );
    for (const { code, stderr } of outcomes) {
      assert.notEqual(code, 0);
      assert.match(stderr, /no such file or directory/i);
      assert.doesNotMatch(stderr, /os error|file:/);
    }
  });

  test("have no number in the web console either", () => {
    assert.equal(userMessage(new Error("open x: Permission denied (os error 13)")), "open x: Permission denied");
    // Every page of the console formats errors with `userMessage`.
    for (const path of globSync("src/web/**/*.{ts,tsx}"))
      assert.doesNotMatch(readFileSync(path, "utf8"), /\berrorMessage\b/, path);
  });
});

describe("wrong values of serve flags", TIMEOUT, () => {
  test("exit with code 2, and name the flag and the path", async () => {
    using scratch = scratchDirectory();
    const file = (name: string, text: string) => writeSecret(scratch.path, name, text);
    const token = ["--ws-auth", "capability-token", "--ws-token-file", file("token", "t".repeat(64))];
    const missing = join(scratch.path, "no", "such");
    const short = file("short", "hunter2");
    const notPem = file("not-pem", "x");
    const config = file("config.json", '{"nonsense": 1}');
    const cases: [string[], string][] = [
      [["--config", missing], `--config ${missing}: ENOENT`],
      [["--config", config], `--config ${config}: unknown option \`nonsense\``],
      [["--tls-cert", missing, "--tls-key", missing], `--tls-cert ${missing}: ENOENT`],
      [["--tls-cert", notPem, "--tls-key", notPem], `--tls-cert ${notPem}: contains no PEM`],
      [[...token, "--operator-token-file", missing], `--operator-token-file ${missing}: ENOENT`],
      [[...token, "--operator-token-file", short], `--operator-token-file ${short}: the token has 7 bytes`],
      [["--ws-auth", "nonsense"], "--ws-auth nonsense: unsupported kind"],
      [["--audit", missing], `--audit ${missing}: ENOENT`],
      [["--metrics-listen", "192.0.2.1:9464"], "--metrics-listen 192.0.2.1:9464: listen EADDRNOTAVAIL"],
      [["--listen", `unix://${missing}/server.sock`], `--listen unix://${missing}/server.sock: `],
      [["--listen", `unix://${notPem}`], `--listen unix://${notPem}: there is a file that is not a socket`],
      [["--audit", ""], "--audit has an empty value"],
      [["--allow-host", ""], "--allow-host has an empty value"],
      [["--web", "--jobs", ""], "--jobs has an empty value"],
      [["--listen", "unix://relative"], "invalid unix --listen URL `unix://relative`"],
    ];
    const outcomes = cases.map(([args]) => new ServeChild(args[0] === "--listen" ? args : [...LISTEN, ...args]));
    for (const [index, [args, message]] of cases.entries()) {
      const child = outcomes[index] ?? assert.fail();
      assert.equal((await child.exited).code, 2, `${args.join(" ")}: ${child.stderr}`);
      assert.ok(child.stderr.startsWith(`procwire serve: ${message}`), child.stderr);
      assert.equal(child.stderr.trim().split("\n").length, 1);
    }
  });

  test("keep text and exit code of Codex for its flags", async () => {
    const child = new ServeChild([...LISTEN, "--ws-auth", "capability-token"]);
    assert.equal((await child.exited).code, 1);
    assert.match(child.stderr, /`--ws-token-file` or `--ws-token-sha256` is required when/);
  });
});

const LISTEN = ["--listen", "ws://127.0.0.1:0"];

describe("tables of procwire fanout", TIMEOUT, () => {
  const env = { OPENAI_API_KEY: "k", OPENAI_BASE_URL: "http://127.0.0.1:1" };
  const task = ["--instruction", "x {name}", "--dry-run"];

  test("are rejected with the flag that reads them: another delimiter, Latin-1, UTF-16; a workbook is rejected", async () => {
    using scratch = scratchDirectory();
    const file = (name: string, content: Buffer) => writeFileSync(join(scratch.path, name), content);
    file("semicolon.csv", Buffer.from("name;b\nx;1,5\n"));
    file("tabs.csv", Buffer.from("name\tb\nx\t1\n"));
    file("latin.csv", Buffer.from("name,b\nJosé,1\n", "latin1"));
    file("wide.csv", Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("name,b\nx,1\n", "utf16le")]));
    file("single.csv", Buffer.from("name\nx;y\n"));
    file("book.xlsx", Buffer.from("PK\x03\x04\x14\x00name"));
    const cases: [string[], RegExp | null][] = [
      [["semicolon.csv"], /fields seem to be separated by ';'; read it with --delimiter ';', or with --delimiter ','/],
      [["semicolon.csv", "--delimiter", ";"], null],
      [["tabs.csv"], /read it with --delimiter tab/],
      [["tabs.csv", "--delimiter", "tab"], null],
      [["latin.csv"], /did not contain valid UTF-8; read it with --encoding windows-1252$/m],
      [["latin.csv", "--encoding", "windows-1252"], null],
      [["wide.csv"], /read it with --encoding utf-16le$/m],
      [["wide.csv", "--encoding", "utf-16le"], null],
      [["single.csv"], null],
      [["book.xlsx"], /failed to read csv input book.xlsx: it is a ZIP archive or a workbook; export it as CSV$/m],
    ];
    const outcomes = await runMain(
      cases.map(([args]) => ["fanout", ...args, ...task]),
      { cwd: scratch.path, env },
    );
    for (const [index, [args, message]] of cases.entries()) {
      const { code, stderr } = outcomes[index] ?? assert.fail();
      assert.equal(code, message === null ? 0 : 1, `${args.join(" ")}: ${stderr}`);
      if (message) assert.match(stderr, message);
    }
  });

  test("are not written as an unknown format, or into a missing directory without --mkdir", async () => {
    using scratch = scratchDirectory();
    writeFileSync(join(scratch.path, "in.csv"), "name\nx\n");
    const endings = "; expected .csv, .tsv, .tab, .jsonl or .ndjson";
    const cases: [string[], number, string][] = [
      [["--output", "o.xlsx"], 2, `--output o.xlsx: cannot write \`.xlsx\` files${endings}`],
      [["--output", "o.parquet"], 2, `--output o.parquet: cannot write \`.parquet\` files${endings}`],
      [["--output", "new/o.csv"], 2, `--output new/o.csv: no such directory: ${scratch.path}/new; --mkdir creates it`],
      [["--output", "new/deep/o.csv", "--mkdir"], 0, ""],
      [["--output", "/dev/null"], 0, ""],
      [["--mkdir"], 2, "--mkdir requires --output FILE"],
    ];
    const outcomes = await runMain(
      cases.map(([args]) => ["fanout", "in.csv", ...task, ...args]),
      { cwd: scratch.path, env },
    );
    for (const [index, [args, code, message]] of cases.entries()) {
      const outcome = outcomes[index] ?? assert.fail();
      assert.equal(outcome.code, code, `${args.join(" ")}: ${outcome.stderr}`);
      if (code === 2) assert.equal(outcome.stderr, `procwire fanout: ${message}; see \`procwire fanout --help\`\n`);
    }
    assert.ok(existsSync(join(scratch.path, "new", "deep")));
  });
});
