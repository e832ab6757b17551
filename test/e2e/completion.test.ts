import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { describe, test } from "node:test";
import { startCli } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const entry = join(import.meta.dirname, "..", "..", "src", "cli", "procwire.ts");

/** Runs a shell script with `procwire` on PATH. */
function inShell(shell: string, args: readonly string[], script: string): string {
  using directory = scratchDirectory();
  const program = join(directory.path, "procwire");
  writeFileSync(program, `#!/bin/sh\nexec "${process.execPath}" "${entry}" "$@"\n`);
  chmodSync(program, 0o755);
  return execFileSync(shell, [...args, "-c", script], {
    encoding: "utf8",
    env: { HOME: directory.path, PATH: `${directory.path}${delimiter}${process.env.PATH}` },
  });
}

/** Returns the completions that bash offers for an unfinished command line. */
function offeredByBash(...words: string[]): string[] {
  const line = words.map((word) => `'${word}'`).join(" ");
  const script = `source <(procwire completion bash)
COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}
_procwire
printf '%s\\n' "\${COMPREPLY[@]}"`;
  return inShell("bash", ["--norc", "--noprofile"], script).split("\n").filter(Boolean);
}

const isThere = (shell: string) => spawnSync(shell, ["-c", "true"]).status === 0;

describe("shell completion", () => {
  test("offers the commands, and the options of a command, in bash", () => {
    const commands = offeredByBash("procwire", "");
    for (const name of ["serve", "run", "fanout", "completion"]) assert.ok(commands.includes(name), name);
    assert.ok(!commands.includes("Usage"));
    assert.deepEqual(offeredByBash("procwire", "ser"), ["serve"]);
    assert.deepEqual(offeredByBash("procwire", "run", "--tt"), ["--tty"]);
    // Each of these flags shares its help line with another flag.
    assert.deepEqual(offeredByBash("procwire", "exec", "--insec"), ["--insecure-plain-token"]);
    assert.deepEqual(offeredByBash("procwire", "run", "--work"), ["--workdir"]);
    assert.deepEqual(offeredByBash("procwire", "run", "file"), [], "bash itself offers files then");
  });

  test("offers the same in fish", {
    skip: skipUnless(isThere("fish"), "COMPLETION IN FISH IS NOT TESTED: it is not installed"),
  }, () => {
    const offered = (line: string) =>
      inShell("fish", ["--no-config"], `procwire completion fish | source; complete -C '${line}'`).split("\n");
    assert.deepEqual(offered("procwire ser"), ["serve\tserve processes over stdio, WebSocket or a Unix socket", ""]);
    assert.deepEqual(offered("procwire run --tt"), ["--tty", ""]);
    assert.deepEqual(offered("procwire run --work"), ["--workdir", ""]);
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
  });

  test("is rejected for an unknown shell", async () => {
    const { code, stderr } = await startCli(["completion", "csh"], { cwd: "/" }).ended;
    assert.equal(code, 2);
    assert.equal(stderr, "procwire completion: give one shell: bash, zsh, fish; see `procwire completion --help`\n");
  });
});
