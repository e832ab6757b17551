import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { shellQuote } from "../../../src/base/text/printable-text.ts";
import { describeCommand } from "../../../src/tools/policy/approval.ts";
import { analyzeCommand } from "../../../src/tools/policy/command-analysis.ts";
import { parseRules, rulesPolicy } from "../../../src/tools/policy/rules-file.ts";

const BASH = { path: "/bin/bash", kind: "default" } as const;

/** Decision of rules that allow everything except some commands. */
function judge(line: string, ...refused: string[][]): string {
  const rule = refused.map((prefix) => ({ prefix, decision: "refuse" }));
  const policy = rulesPolicy(parseRules({ default: "allow", rule }));
  return policy.review({
    kind: "command",
    ...describeCommand(line, BASH, { login: true }),
    tty: false,
    workdir: "/w",
    sandbox: "none",
    sandboxWritable: false,
  }).type;
}

test("a rule that refuses a command also matches it behind programs that run it", () => {
  const lines = [
    ...["rm x", "/bin/rm x", "../../bin/rm x", "\\rm x", "'rm' x", 'r"m" x', "r''m x", "true; rm x", "true|rm"],
    ...["A=1 rm x", "A=1 B+=2 rm x", "env rm x", "env -i A=1 rm", "/usr/bin/env -u B -C / -- rm x", "env - rm"],
    ...["command rm x", "command -p rm", "builtin command rm", "exec rm x", "exec -a ls rm x", "nohup rm"],
    ...["nice rm", "nice -n 5 rm", "nice -5 rm", "nice --adjustment=5 rm", "timeout 5 rm", "timeout -s 9 -k1 5 rm"],
    ...["sudo rm", "sudo -u root -EH rm", "sudo -uroot A=1 rm", "sudo --user=root -- rm", "doas rm", "setsid -f rm"],
    ...["xargs rm", "ls | xargs -0 -n1 rm -f", "xargs --max-args=1 rm", "stdbuf -oL rm", "chroot / rm", "busybox rm"],
    ...["bash -c 'rm x'", "sh -lc 'rm x'", "/bin/bash --norc -e -c 'true; rm x'", "bash -eo pipefail -c 'rm x'"],
    ...["dash -c 'env sh -c \"rm x\"'", "eval rm x", "eval 'rm x'", "find . -exec rm '{}' ';'", "ionice -c 3 rm"],
    ...["find . -type f -execdir rm '{}' +", "time -p rm".replace("time", "/usr/bin/time"), "env env nice env rm"],
    ...["sudo timeout 5 xargs sh -c 'A=1 exec /bin/rm \"x y\"'", "taskset -c 0 rm x", "toybox rm x"],
    ...["env A/B=1 rm x", "env '=1' rm x", "env /A=1 rm x", "sudo A/B=1 rm x", "eval -- rm x", "eval -- 'rm x'"],
  ];
  for (const line of lines) assert.equal(judge(line, ["rm"]), "refuse", line);
});

test("a line that cannot be analyzed is not allowed without a prompt", () => {
  const lines = [
    ...["rm $x", "$x", "$(echo rm) x", "`echo rm`", "r? x", "rm > f", "{ rm; }", "if rm; then x; fi", "(rm)"],
    ...["bash", "bash -s", "echo rm x | sh", "bash -c '$x'", "bash script", "sh -c 'rm $1' x", "env -S 'rm x'"],
    ...["xargs -I% sh -c %", "xargs --what rm", "sudo -i", "sudo -s rm", "python3 -c 'x'", "perl -e x", "awk x"],
    ...["source x", ". x", "trap rm EXIT", "ssh host rm", "su -c rm", "watch rm", "strace rm", "fish -c rm"],
    ...["find . -exec '{}' ';'", "find . -exec rm", "eval $x", "bash -c", "node x.js", "flock f rm"],
    ...["echo rm x | chroot /", "sudo /A=1/rm x", "alias x=rm\nx y", "hash -p /bin/rm x; x y", "emulate sh -c 'rm x'"],
    ...["compgen -C 'rm x'", "mapfile -C 'rm x' -c 1", "linux64 rm x", "choom -n 0 -- rm x", "sg root 'rm x'"],
  ];
  for (const line of lines) assert.equal(judge(line, ["rm"]), "ask", line);
});

test("a rule finds a command behind combined short options, with and without a value", () => {
  for (const line of ["sudo -nu root rm x", "sudo -nuroot rm x", "xargs -0n 1 rm", "xargs -0n1 rm", "env -iu A rm"])
    assert.equal(judge(line, ["rm"]), "refuse", line);
  for (const line of ["sudo -nq rm x", "xargs -0Z rm"]) assert.notEqual(judge(line, ["rm"]), "refuse", line);
});

test("a rule does not take the name of a shell's script for a command", () => {
  for (const line of ["bash rm", "bash -x rm", "bash -o pipefail rm", "bash --rcfile f rm", "bash -- rm"])
    assert.equal(judge(line, ["rm"]), "ask", line);
  for (const line of ["bash -o pipefail -c rm", "bash --init-file f -c rm", "bash +O x -c rm", "bash -c -- rm"])
    assert.equal(judge(line, ["rm"]), "refuse", line);
});

test("a command unrelated to a refusing rule stays allowed", () => {
  const lines = ["ls", "grep rm x", "echo 'rm x'", "env ls", "bash -c 'ls; pwd'", "xargs ls", "git commit -m rm"];
  for (const line of lines) assert.equal(judge(line, ["rm"]), "allow", line);
  assert.equal(judge("ls", ["bash"]), "allow", "the rule does not apply to the shell that runs the line");
  assert.equal(judge("bash -c ls", ["bash"]), "refuse");
  assert.equal(judge("env bash"), "allow", "no rule refuses anything");
});

test("a rule of several words asks if options or piped words may complete its words", () => {
  const push = ["git", "push"];
  assert.equal(judge("git push origin", push), "refuse");
  assert.equal(judge("env /usr/bin/git push", push), "refuse");
  assert.equal(judge("git -C /x push", push), "ask");
  assert.equal(judge("git --no-pager push", push), "ask");
  assert.equal(judge("echo push | xargs git", push), "ask");
  assert.equal(judge("git -C /x status", push), "allow");
  assert.equal(judge("git commit -m push", push), "allow");
});

test("a rule refuses a nested command although a later rule about the same program does not match it", () => {
  assert.equal(judge("env git push x", ["git", "push"], ["git", "pull"]), "refuse");
});

test("a rule about a command's arguments also stops a line to which xargs adds more", () => {
  const push = ["git", "push"];
  assert.equal(judge("xargs git", push), "ask");
  assert.equal(judge("xargs sh -c 'git'", push), "ask");
  assert.equal(judge("xargs sh -c 'git' name", push), "allow");
  assert.equal(judge("sh -c 'git'", push), "allow");
});

test("a rule about several words asks for a line with an option between any two of them", () => {
  const force = ["git", "push", "--force"];
  assert.equal(judge("git push --force", force), "refuse");
  assert.equal(judge("git push -v --force", force), "ask");
  assert.equal(judge("git -v push --force", force), "ask");
  assert.equal(judge("git push -v origin", force), "allow");
});

test("an analysis follows 12 nested programs and reports deeper ones as hidden", () => {
  const nested = (depth: number) => analyzeCommand([...Array.from({ length: depth }, () => "env"), "ls"]);
  assert.deepEqual([nested(12).hidden, nested(12).commands.length], ["nothing", 13]);
  assert.equal(nested(13).hidden, "certainly");
});

test("an analysis follows 12 nested lines, and 12 programs below find", () => {
  const evals = (depth: number) => analyzeCommand([...Array.from({ length: depth }, () => "eval"), "ls"]).hidden;
  assert.deepEqual([evals(12), evals(13)], ["nothing", "certainly"]);
  const below = (depth: number) =>
    analyzeCommand(["find", "-exec", ...Array.from({ length: depth }, () => "env"), "ls", ";"]).hidden;
  assert.deepEqual([below(11), below(12)], ["nothing", "certainly"]);
});

test("an analysis returns the commands of find, to which find adds paths", () => {
  const line = ["find", ".", "-exec", "rm", "x", ";", "-name", "y", "-okdir", "mv", "+", "-print"];
  const { commands, hidden } = analyzeCommand(line);
  const inner = { open: true, guessed: false };
  assert.deepEqual(commands.slice(1), [
    { argv: ["rm", "x"], ...inner },
    { argv: ["mv"], ...inner },
  ]);
  assert.equal(hidden, "nothing");
  assert.equal(analyzeCommand(["find", "-exec", "echo", "-exec", ";"]).hidden, "nothing");
  assert.equal(analyzeCommand(["find", "-exec", ";"]).hidden, "certainly");
  assert.equal(analyzeCommand(["find", "-exec", "ls", ";", "-exec", "rm"]).hidden, "certainly");
});

test("an analysis distinguishes programs without a command from programs with an unknown command", () => {
  const hidden = (...words: string[]) => analyzeCommand(words).hidden;
  for (const words of [["xargs"], ["nohup"], ["env", "-i"], ["bash", "-c", "A=1"]])
    assert.equal(hidden(...words), "nothing", words.join(" "));
  for (const words of [
    ["xargs", "env"],
    ["xargs", "env", "-i"],
    ["sudo", "--unknown=1", "ls"],
    ["env", "--unknown", "ls"],
  ])
    assert.equal(hidden(...words), "certainly", words.join(" "));
  for (const words of [
    ["bash", "-s", "x"],
    ["bash", "-sc", "ls"],
    ["bash", "-c"],
  ])
    assert.equal(hidden(...words), "certainly", words.join(" "));
  assert.equal(analyzeCommand(["xargs", "env", "-i"]).commands.length, 2);
  assert.equal(hidden("env", "--ignore-environment=x", "ls"), "nothing");
});

test("a rule that allows a remote shell still asks for a refused command among its words", () => {
  const rule = [
    { prefix: ["ssh"], decision: "allow" },
    { prefix: ["rm"], decision: "refuse" },
  ];
  const policy = rulesPolicy(parseRules({ default: "ask", rule }));
  const decide = (line: string) =>
    policy.review({
      kind: "command",
      ...describeCommand(line, BASH, { login: true }),
      ...{ tty: false, workdir: "/w", sandbox: "none", sandboxWritable: false },
    }).type;
  assert.equal(decide("ssh host ls"), "allow");
  for (const line of ["ssh host rm", "ssh rm", "ssh host sudo rm x"]) assert.equal(decide(line), "ask", line);
});

test("a rule that allows an interpreter or a wrapper does not allow a refused command behind it", () => {
  const policy = rulesPolicy(
    parseRules({
      rule: [
        { prefix: ["python3"], decision: "allow" },
        { prefix: ["env"], decision: "allow" },
        { prefix: ["rm"], decision: "refuse" },
      ],
    }),
  );
  const decision = (line: string) =>
    policy.review({
      kind: "command",
      ...describeCommand(line, BASH, { login: true }),
      tty: false,
      workdir: "/w",
      sandbox: "none",
      sandboxWritable: false,
    }).type;
  assert.equal(decision("python3 tool.py"), "allow");
  assert.equal(decision("env A=1 ls"), "allow");
  assert.equal(decision("env A=1 rm x"), "refuse");
  assert.equal(decision("env -S 'rm x'"), "ask");
});

test("a rule for a shell's -lc also covers -c, and a rule for -c covers only -c", () => {
  const lines = ["bash -lc ls", "bash -c ls", "sudo bash -c ls"];
  assert.deepEqual(
    lines.map((line) => judge(line, ["bash", "-lc"])),
    ["refuse", "refuse", "refuse"],
  );
  assert.deepEqual(
    lines.map((line) => judge(line, ["bash", "-c"])),
    ["allow", "refuse", "refuse"],
  );
  const other = { path: "/opt/tool", kind: "other" } as const;
  const policy = rulesPolicy(parseRules({ default: "allow", rule: [{ prefix: ["tool", "-lc"], decision: "refuse" }] }));
  const request = {
    kind: "command",
    tty: false,
    workdir: "/w",
    sandbox: "none",
    sandboxWritable: false,
  } as const;
  const decision = (login: boolean) => policy.review({ ...request, ...describeCommand("ls", other, { login }) }).type;
  assert.deepEqual([decision(true), decision(false)], ["refuse", "ask"], "`tool` is no shell whose -c is known");
});

/** A program that leaves a trace, run by every wrapper program. */
test("a line that really runs a refused program is never allowed without a prompt", () => {
  const directory = mkdtempSync(join(tmpdir(), "procwire-reach-"));
  const trace = join(directory, "trace");
  const victim = join(directory, "victim");
  writeFileSync(victim, `#!/bin/sh\n: >${trace}\n`);
  chmodSync(victim, 0o755);
  const quoted = (line: string) => shellQuote(line);
  const wrap = fc.constantFrom<(line: string) => string>(
    (line) => `env ${line}`,
    (line) => `env -i PATH="$PATH" ${line}`,
    (line) => `env -u HOME A=1 ${line}`,
    (line) => `A=1 ${line}`,
    (line) => `command ${line}`,
    (line) => `exec ${line}`,
    (line) => `nice -n 1 ${line}`,
    (line) => `nohup ${line}`,
    (line) => `timeout -k 1 5 ${line}`,
    (line) => `setsid -w ${line}`,
    (line) => `stdbuf -oL ${line}`,
    (line) => `echo x | xargs ${line}`,
    (line) => `echo x | xargs -n1 -- ${line}`,
    (line) => `xargs -a /dev/null ${line}`,
    (line) => `bash -c ${quoted(line)}`,
    (line) => `sh -ec ${quoted(line)}`,
    (line) => `bash -o pipefail +x -c ${quoted(line)}`,
    (line) => `bash --norc -eo pipefail -c ${quoted(line)}`,
    (line) => `bash -c ${quoted(`"$@"`)} - ${line}`,
    (line) => `echo ${quoted(line)} | sh`,
    (line) => `eval ${quoted(line)}`,
    (line) => `eval ${line}`,
    (line) => `find . -maxdepth 0 -exec ${line} ';'`,
    (line) => `true && ${line}`,
    (line) => `false || ${line}`,
    (line) => `! ${line}`,
    (line) => `{ ${line}; }`,
    (line) => `(${line})`,
    (line) => `$(echo ${line})`,
    (line) => `if true; then ${line}; fi`,
    (line) => `f() { ${line}; }; f`,
    (line) => `${line} &>/dev/null`,
    (line) => `${line} & wait`,
  );
  const named = fc.constantFrom("victim", victim, "\\victim", "'vic'tim", "v$'i'ctim", 'v"$x"ictim', "vi?tim");
  let ran = 0;
  try {
    fc.assert(
      fc.property(named, fc.array(wrap, { maxLength: 3 }), (name, wraps) => {
        const line = wraps.reduce((inner, more) => more(inner), name);
        rmSync(trace, { force: true });
        spawnSync("/bin/bash", ["-c", line], {
          cwd: directory,
          env: { PATH: `${directory}:/usr/bin:/bin`, HOME: directory },
          stdio: "ignore",
          timeout: 10_000,
        });
        if (!existsSync(trace)) return;
        ran++;
        assert.notEqual(judge(line, ["victim"]), "allow", line);
      }),
      { numRuns: 200 },
    );
    assert.ok(ran > 50, `only ${ran} lines ran it`);
  } finally {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});
