import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { delimiter, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { ENTRY, runCli, startCli } from "../support/servers/run-cli.ts";
import { ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

/** The default time limit is too short for a busy machine. */
const PATIENT = { PROCWIRE_COMPLETION_TIMEOUT_MS: "60000" };

/** A server with a running process `api` and an exited process `batch`. */
let server: ServeChild;
let handle = "";
before(async () => {
  server = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
  const run = (name: string, ...command: string[]) =>
    runCli(["run", "--detach", "--connect", server.url, "--name", name, "--", ...command], { cwd: "/" });
  handle = (await run("api", "sleep", "300")).stdout.trim();
  await run("batch", "true");
  await runCli(["wait", "--connect", server.url, "batch"], { cwd: "/" });
});
after(() => server.stop());

/** Runs a shell script with `procwire` on PATH. */
function inShell(shell: string, args: readonly string[], script: string): string {
  using directory = scratchDirectory();
  const program = join(directory.path, "procwire");
  writeFileSync(program, `#!/bin/sh\nexec "${process.execPath}" "${ENTRY}" "$@"\n`);
  chmodSync(program, 0o755);
  return execFileSync(shell, [...args, "-c", script], {
    encoding: "utf8",
    env: {
      HOME: directory.path,
      PATH: `${directory.path}${delimiter}${process.env.PATH}`,
      PROCWIRE_CONNECT: server.url,
      ...PATIENT,
    },
  });
}

/** Returns the completions that bash offers for unfinished command lines. */
function offeredByBash(...lines: string[]): string[][] {
  const offers = lines.map((line) => {
    const words = line.split(" ");
    return `COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}
COMP_LINE='${line}'; COMP_POINT=${line.length}; _procwire; echo "\${COMPREPLY[@]}"`;
  });
  const script = ["source <(procwire completion bash)", ...offers].join("\n");
  const shown = inShell("bash", ["--norc", "--noprofile"], script).split("\n").slice(0, -1);
  return shown.map((line) => line.split(" ").filter(Boolean));
}

const isThere = (shell: string) => spawnSync(shell, ["-c", "true"]).status === 0;

describe("shell completion", () => {
  test("offers the commands, and the options of a command, in bash", () => {
    const [commands = [], ...others] = offeredByBash(
      "procwire ",
      "procwire ser",
      "procwire run --tt",
      // `--help` of exec does not list the first flag, and prints the second one behind another flag.
      "procwire exec --insec",
      "procwire run --work",
      "procwire jobs retry --cl",
      "procwire jobs list --cl",
      // Bash itself offers files then.
      "procwire run file",
    );
    for (const name of ["serve", "run", "fanout", "completion"]) assert.ok(commands.includes(name), name);
    assert.ok(!commands.includes("Usage"));
    assert.deepEqual(others, [["serve"], ["--tty"], ["--insecure-plain-token"], ["--workdir"], ["--class"], [], []]);
  });

  test("offers subcommands, names and handles in bash, and nothing for the value of an option", () => {
    const offers: [line: string, words: string[]][] = [
      ["procwire jobs re", ["resume", "retry", "report"]],
      ["procwire help fan", ["fanout"]],
      ["procwire completion ", ["bash", "zsh", "fish"]],
      ["procwire attach ", ["api", handle]],
      ["procwire share ", ["list", "revoke", "api", handle]],
      ["procwire record --attach ", ["api", handle]],
      [`procwire kill --signal HUP ${handle.slice(0, 3)}`, [handle]],
      ["procwire kill --signal ", []],
      ["procwire logs --tail 5 bat", ["batch"]],
      ["procwire wait batch api", ["api"]],
      [`procwire attach --connect ${server.url} api`, ["api"]],
    ];
    assert.deepEqual(
      offeredByBash(...offers.map(([line]) => line)),
      offers.map(([, words]) => words),
    );
  });

  test("offers nothing, silently, if the server does not respond or is not a socket", async () => {
    await using silent = createServer((socket) => void socket.resume()).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    for (const url of [
      `ws://127.0.0.1:${port}`,
      "ws://127.0.0.1:1",
      "ssh://nowhere.invalid",
      "exec:false",
      "nonsense",
    ]) {
      const env = { PROCWIRE_CONNECT: url };
      const { code, stdout, stderr } = await runCli(["help", "--candidates", "attach"], { cwd: "/", env });
      assert.deepEqual([code, stdout, stderr], [0, "", ""], url);
      const share = await runCli(["help", "--candidates", "share"], { cwd: "/", env });
      assert.match(share.stdout, /^list\t.*\nrevoke\t.*\n$/, url);
    }
  });

  test("offers the same in fish", {
    skip: skipUnless(isThere("fish"), "COMPLETION IN FISH IS NOT TESTED: it is not installed"),
  }, () => {
    const offered = (line: string) =>
      inShell("fish", ["--no-config"], `procwire completion fish | source; complete -C '${line}'`).split("\n");
    assert.deepEqual(offered("procwire ser"), ["serve\tserve processes over stdio, WebSocket or a Unix socket", ""]);
    assert.deepEqual(offered("procwire run --tt"), ["--tty", ""]);
    assert.deepEqual(offered("procwire run --work"), ["--workdir", ""]);
    assert.deepEqual(offered("procwire attach "), ["api\tsleep 300", `${handle}\tapi: sleep 300`, ""]);
  });

  test("gives the same to the completion system of zsh", {
    skip: skipUnless(isThere("zsh"), "COMPLETION IN ZSH IS NOT TESTED: it is not installed"),
  }, () => {
    // zsh's completion system works only at a prompt; these stand-ins print what they are given.
    const system = `compdef() { }
_describe() { print -rl -- "\${(@P)2}" }
compadd() { shift; print -rl -- "$@" }`;
    const offered = (...words: string[]) =>
      inShell(
        "zsh",
        ["-f"],
        `${system}\nsource <(procwire completion zsh)\nwords=(${words.join(" ")}); CURRENT=${words.length}; _procwire`,
      ).split("\n");
    assert.ok(offered("procwire", "ser").includes("run:run a command on this host or on a server"));
    const options = offered("procwire", "run", "--tt");
    assert.ok(options.includes("--tty") && options.includes("--workdir"));
    assert.deepEqual(offered("procwire", "attach", "''"), ["api:sleep 300", `${handle}:api: sleep 300`, ""]);
  });

  test("is rejected for an unknown shell", async () => {
    const { code, stderr } = await startCli(["completion", "csh"], { cwd: "/" }).ended;
    assert.equal(code, 2);
    assert.equal(stderr, "procwire completion: give one shell: bash, zsh, fish; see `procwire completion --help`\n");
  });
});
