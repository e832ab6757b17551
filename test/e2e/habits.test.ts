import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { EscapeKey } from "../../src/cli/options/escape-key.ts";
import { closestMatch } from "../../src/cli/options/parse-options.ts";
import { splitOptionsAndCommand } from "../../src/cli/options/split-command.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { type RunningServer, startServer } from "../contract/backends.ts";
import { ENTRY, runCli } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const TIMEOUT = { timeout: 600_000 };

describe("the command of `procwire run` begins", () => {
  const options = {
    tty: { type: "boolean", short: "t" },
    env: { type: "string", short: "e" },
    interactive: { type: "boolean", short: "i" },
  } as const;
  const cases: [string, string][] = [
    ["ls -la", "| ls -la"],
    ["-- -x", "| -x"],
    ["--tty ls --color", "--tty | ls --color"],
    ["-it -e A=b sh -c x", "-it -e A=b | sh -c x"],
    ["--env A=b ls", "--env A=b | ls"],
    ["--env=A=b ls", "--env=A=b | ls"],
    ["-eA=b ls", "-eA=b | ls"],
    ["-ite A=b ls -- x", "-ite A=b | ls -- x"],
    ["--unknown ls", "--unknown | ls"],
  ];
  for (const [line, wanted] of cases) {
    test(`where its options end: ${line}`, () => {
      const { ownArgs, command } = splitOptionsAndCommand(line.split(" "), options);
      assert.equal(`${ownArgs.join(" ")} | ${command.join(" ")}`.trim(), wanted);
    });
  }
});

describe("the escape key", () => {
  const typed = (...parts: string[]) => {
    const key = new EscapeKey("~".charCodeAt(0));
    let passed = "";
    for (const part of parts) {
      const { pass, leaves } = key.take(Buffer.from(part));
      passed += Buffer.from(pass).toString();
      if (leaves) return [passed, "left"];
    }
    return [passed];
  };

  test("detaches only with a dot at the beginning of a line, however the keys arrive", () => {
    assert.deepEqual(typed("~."), ["", "left"]);
    assert.deepEqual(typed("ls\r~.rest"), ["ls\r", "left"]);
    assert.deepEqual(typed(..."a\n~."), ["a\n", "left"]);
    assert.deepEqual(typed("cd ~.ssh\r"), ["cd ~.ssh\r"]);
    assert.deepEqual(typed("~~.\r"), ["~.\r"]);
    assert.deepEqual(typed("~/bin\r"), ["~/bin\r"]);
    assert.deepEqual(typed("~", "x", "~."), ["~x~."]);
    assert.deepEqual(typed("~\r~."), ["~\r", "left"]);
  });
});

describe("a mistyped word", () => {
  test("gets the nearest known word as a suggestion; an unrelated word gets none", () => {
    const words = ["connect", "token-file", "verbose", "env", "timeout"];
    assert.equal(closestMatch("conect", words), "connect");
    assert.equal(closestMatch("tiemout", words), "timeout");
    assert.equal(closestMatch("token", words), "token-file");
    assert.equal(closestMatch("colour", words), null);
  });
});

describe("procwire run, by the habits of docker and ssh", TIMEOUT, () => {
  let server: RunningServer;
  before(async () => {
    server = await startServer("ws://127.0.0.1:0");
  });
  after(() => server.stop());

  for (const where of ["here", "on a server"] as const) {
    const run = (args: string[], cwd = "/", env: Record<string, string> = {}) =>
      runCli(["run", ...(where === "here" ? [] : ["--connect", server.url]), ...args], {
        cwd,
        env,
        stdin: "",
      });

    test(`takes the command without --, and short options, ${where}`, async () => {
      const args = [
        "-i",
        "-w",
        "/tmp",
        "-e",
        "A=b",
        "-e",
        "FROM_HERE",
        "sh",
        "-c",
        'pwd; echo "$A $FROM_HERE $1"',
        "-",
        "-x",
      ];
      const { code, stdout, stderr } = await run(args, "/", { FROM_HERE: "too" });
      assert.deepEqual([code, stdout, stderr], [0, "/tmp\nb too -x\n", ""]);
    });

    test(`reports the missing directory and exits with 125, ${where}`, async () => {
      const { code, stderr } = await run(["--cwd", "/no/such", "ls"]);
      assert.deepEqual([code, stderr], [125, "procwire run: --cwd: no such directory: /no/such\n"]);
    });

    test(`reports when it cannot switch to a user, and switches to an allowed user, ${where}`, async () => {
      const missing = await run(["--user", "no-such-user", "id"]);
      assert.equal(missing.code, 125);
      assert.match(missing.stderr, /--user no-such-user: no such user/);
      const nobody = await run(["--user", "nobody", "sh", "-c", "id -un; id -gn; echo $HOME $USER"]);
      if (process.getuid?.() === 0) assert.match(nobody.stdout, /^nobody\nnogroup\n\S+ nobody\n$/);
      else assert.match(nobody.stderr, /--user nobody: requires root, but this is/);
    });
  }

  test("resolves a relative directory against the working directory", async () => {
    using scratch = scratchDirectory();
    mkdirSync(join(scratch.path, "below"));
    const { stdout } = await runCli(["run", "--cwd", "below", "pwd"], { cwd: scratch.path });
    assert.equal((await runCli(["run", "--workdir", "below", "pwd"], { cwd: scratch.path })).stdout, stdout);
    assert.equal(stdout, `${scratch.path}/below\n`);
  });

  test("detaches with ~. and restores the terminal", async (t) => {
    await using backend = createLocalBackend();
    const words = [
      process.execPath,
      ENTRY,
      "run",
      "--connect",
      server.url,
      "-t",
      "--",
      "sh",
      "-c",
      "'echo ready; cat'",
    ];
    const terminal = await backend
      .start({
        processId: "terminal",
        argv: ["/bin/sh", "-c", `${words.join(" ")}; echo code $?; read y`],
        cwd: "/",
        env: { PATH: process.env.PATH ?? "", TERM: "xterm" },
        tty: true,
      })
      .catch((error: Error) => t.skip(skipUnless(false, `this build has no terminals: ${error.message}`) || undefined));
    if (!terminal) return;
    await using _ = terminal;
    await waitFor(terminal, "ready");
    await terminal.write(Buffer.from("a ~. b\r"));
    await waitFor(terminal, /a ~\. b[\s\S]*a ~\. b/);
    await terminal.write(Buffer.from("~."));
    await waitFor(terminal, /left\s+code 129/);
    const { tty } = await terminal.snapshot();
    assert.deepEqual([tty?.canonical, tty?.echo], [true, true]);
  });
});

describe("procwire serve at a terminal", TIMEOUT, () => {
  test("prints that it waits for JSON-RPC messages, and which command serves at an address", async (t) => {
    await using backend = createLocalBackend();
    const terminal = await backend
      .start({ processId: "serve", argv: [process.execPath, ENTRY, "serve"], cwd: "/", env: {}, tty: true })
      .catch((error: Error) => t.skip(skipUnless(false, `this build has no terminals: ${error.message}`) || undefined));
    if (!terminal) return;
    await using _ = terminal;
    await waitFor(terminal, /procwire serve: waiting for JSON-RPC messages on stdin[\s\S]*`procwire start` serves on/);
    await terminal.write(Buffer.from("\x04"));
    await terminal.wait();
  });

  test("prints nothing of that to a program", async () => {
    const { code, stderr } = await runCli(["serve"], { cwd: "/", stdin: "" });
    assert.equal(code, 0);
    assert.doesNotMatch(stderr, /waiting/);
  });
});

describe("procwire with an unwritable output", TIMEOUT, () => {
  test("exits silently when its reader has closed", async () => {
    for (const args of [
      ["--help"],
      ["run", "--help"],
      ["serve", "--help"],
      ["jobs", "list", "--json"],
      ["completion", "bash"],
    ]) {
      const child = spawn(process.execPath, [ENTRY, ...args], {
        stdio: ["ignore", "pipe", "pipe"],
        cwd: "/tmp",
      });
      child.stdout.destroy();
      const [printed] = await Promise.all([text(child.stderr), once(child, "exit")]);
      assert.equal(printed, "", args.join(" "));
    }
  });

  test("reports a full device", async () => {
    const full = openSync("/dev/full", "w");
    try {
      for (const args of [["--help"], ["run", "--help"], ["run", "echo", "x"], ["completion", "bash"]]) {
        const child = spawn(process.execPath, [ENTRY, ...args], { stdio: ["ignore", full, "pipe"] });
        const [printed, [code]] = await Promise.all([text(child.stderr as NodeJS.ReadableStream), once(child, "exit")]);
        assert.match(
          printed,
          /^procwire[\w ]*: cannot write to stdout: no space left on device \(ENOSPC\)\n$/,
          args.join(" "),
        );
        assert.notEqual(code, 0);
      }
    } finally {
      closeSync(full);
    }
  });
});

describe("procwire's argument errors", TIMEOUT, () => {
  const runFailing = async (...args: string[]) => {
    const { code, stderr } = await runCli(args, { cwd: "/tmp" });
    return [code, stderr] as const;
  };

  test("suggest the nearest option or command", async () => {
    assert.deepEqual(await runFailing("run", "--conect", "x", "ls"), [
      2,
      "procwire run: unknown option `--conect`; did you mean `--connect`?; see `procwire run --help`\n",
    ]);
    assert.deepEqual(await runFailing("serve", "--lisen", "x"), [
      2,
      "procwire serve: unknown option `--lisen`; did you mean `--listen`?; see `procwire serve --help`\n",
    ]);
    assert.deepEqual(await runFailing("ps", "--strange"), [
      2,
      "procwire ps: unknown option `--strange`; see `procwire ps --help`\n",
    ]);
    assert.deepEqual(await runFailing("rnu"), [
      2,
      "procwire: unknown command `rnu`; did you mean `run`? `procwire --help` lists the commands\n",
    ]);
  });

  test("suggest the nearest subcommand, and `--version` for `version`", async () => {
    for (const [command, typed, meant] of [
      ["jobs", "lst", "list"],
      ["token", "creat", "create"],
      ["access", "revok", "revoke"],
      ["audit", "verfy", "verify"],
    ] as const)
      assert.deepEqual(await runFailing(command, typed), [
        2,
        `procwire ${command}: unknown subcommand \`${typed}\`; did you mean \`${meant}\`?; see \`procwire ${command} --help\`\n`,
      ]);
    for (const typed of ["version", "--versio"])
      assert.deepEqual(await runFailing(typed), [
        2,
        `procwire: unknown command \`${typed}\`; did you mean \`--version\`? \`procwire --help\` lists the commands\n`,
      ]);
  });

  test("name the form of a command that was given as one word", async () => {
    assert.deepEqual(await runFailing("run", "echo hi"), [
      127,
      "procwire run: echo hi: No such file or directory; give each argument as a separate word, or use `sh -c 'echo hi'`\n",
    ]);
  });

  test("include an option of another subcommand", async () => {
    assert.deepEqual(await runFailing("jobs", "list", "--class", "timeout"), [
      2,
      "procwire jobs: unknown option `--class`; see `procwire jobs --help`\n",
    ]);
  });

  test("include `help` of an unknown command; `help COMMAND` prints the text of `COMMAND --help`", async () => {
    const [byName, byOption] = await Promise.all([
      runCli(["help", "ps"], { cwd: "/tmp" }),
      runCli(["ps", "--help"], { cwd: "/tmp" }),
    ]);
    assert.deepEqual([byName.code, byName.stdout], [0, byOption.stdout]);
    assert.match(byName.stdout, /^Usage: procwire ps/);
    assert.equal((await runFailing("help", "nonsense"))[0], 2);
  });
});
