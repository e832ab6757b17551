import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { parseProcStat } from "../../src/base/proc-stat.ts";
import type { ChildSpec } from "../../src/local/child.ts";
import { SpawnError } from "../../src/local/spawn-error.ts";
import { addon, NO_ADDON, startChild, TERMINAL } from "./started.ts";

const scratch = mkdtempSync(join(tmpdir(), "procwire-spawn-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

async function failure(argv: string[], options: Partial<ChildSpec> = {}): Promise<SpawnError> {
  try {
    const started = await startChild(argv, options);
    await started.close;
  } catch (error) {
    assert.ok(error instanceof SpawnError);
    return error;
  }
  throw new assert.AssertionError({ message: `${argv.join(" ")} did start` });
}

describe("starting a process", { skip: NO_ADDON }, () => {
  test("keeps the start time of the process after its exit, also if it was not read before", async () => {
    const live = await startChild(["cat"], { pipeStdin: true });
    const expected = parseProcStat(readFileSync(`/proc/${live.child.pid}/stat`, "utf8"))?.startTime;
    assert.equal(live.child.startTime, expected);
    live.child.input.close();
    await live.close;
    assert.equal(live.child.startTime, expected);

    // The shell prints its own start time, because the process is gone when the test reads it.
    const ended = await startChild(["sh", "-c", 'read -r stat < /proc/$$/stat; echo "$stat"']);
    await ended.close;
    assert.equal(ended.child.startTime, parseProcStat(ended.output().toString())?.startTime);
  });

  for (const terminal of [null, TERMINAL]) {
    const how = terminal ? "in a terminal" : "with pipes";

    test(`reports the failed system call, its path and the error, ${how}`, async () => {
      const plain = join(scratch, "plain");
      const script = join(scratch, "no-shebang");
      writeFileSync(plain, "text");
      writeFileSync(script, "echo no\n");
      chmodSync(plain, 0o644);
      chmodSync(script, 0o755);
      const cases: [argv: string[], options: Partial<ChildSpec>, expected: Partial<SpawnError>][] = [
        [
          ["no-such-program"],
          {},
          {
            code: "ENOENT",
            errno: 2,
            syscall: "execve",
            target: "program",
            path: "no-such-program",
            message: "No such file or directory (os error 2)",
          },
        ],
        [["/no/such/program"], {}, { code: "ENOENT", syscall: "execve", target: "program" }],
        [
          ["true"],
          { cwd: "/no/such/directory" },
          {
            code: "ENOENT",
            syscall: "chdir",
            target: "cwd",
            path: "/no/such/directory",
            message: "No such file or directory (os error 2)",
          },
        ],
        [
          ["true"],
          { cwd: plain },
          { code: "ENOTDIR", syscall: "chdir", target: "cwd", message: "Not a directory (os error 20)" },
        ],
        [
          [plain],
          {},
          {
            code: "EACCES",
            syscall: "execve",
            target: "program",
            message: "Permission denied (os error 13)",
          },
        ],
        [[scratch], {}, { code: "EACCES", syscall: "execve", target: "program" }],
        [
          [script],
          {},
          {
            code: "ENOEXEC",
            syscall: "execve",
            target: "program",
            message: "Exec format error (os error 8)",
          },
        ],
        [
          ["true", "x".repeat(3 * 1024 * 1024)],
          {},
          {
            code: "E2BIG",
            syscall: "execve",
            target: "arguments",
            message: "Argument list too long (os error 7)",
          },
        ],
      ];
      for (const [argv, options, expected] of cases) {
        const error = await failure(argv, { terminal, ...options });
        for (const [field, value] of Object.entries(expected))
          assert.equal(Reflect.get(error, field), value, `${argv[0]}: ${field}`);
      }
    });
  }

  test("searches the PATH of the child, skips files that are not executable, and has a default PATH", async () => {
    const first = mkdtempSync(join(scratch, "first-"));
    const second = mkdtempSync(join(scratch, "second-"));
    writeFileSync(join(first, "tool"), "#!/bin/sh\necho first\n", { mode: 0o644 });
    assert.equal((await failure(["tool"], { env: { PATH: `${first}:${second}` } })).code, "EACCES");
    writeFileSync(join(second, "tool"), "#!/bin/sh\necho second\n", { mode: 0o755 });
    const found = await startChild(["tool"], { env: { PATH: `/no/where:${first}:${second}` } });
    await found.close;
    assert.equal(found.output().toString(), "second\n");
    const byDefault = await startChild(["true"], { env: {} });
    assert.deepEqual(await byDefault.exit, { type: "code", code: 0 });
    const here = await startChild(["tool"], { env: { PATH: "" }, cwd: second });
    await here.close;
    assert.equal(here.output().toString(), "second\n");
    const relative = await startChild(["./tool"], { env: {}, cwd: second });
    await relative.close;
    assert.equal(relative.output().toString(), "second\n");
  });

  test("passes exactly the requested arguments, argv[0] and environment", async () => {
    for (const terminal of [null, TERMINAL]) {
      const odd = ["", " ", "a'b\"c", "ünï", "-x", "*"];
      const started = await startChild(["sh", "-c", 'printf "<%s>" "$0" "$@"', "my name", ...odd], {
        file: "sh",
        terminal,
      });
      await started.close;
      assert.equal(started.output().toString(), ["my name", ...odd].map((text) => `<${text}>`).join(""));
      const renamed = await startChild(["other-name", "-c", "echo $0"], { file: "/bin/sh", terminal });
      await renamed.close;
      assert.equal(renamed.output().toString().trim(), "other-name");
      const environment = await startChild(["/usr/bin/env"], {
        env: { A: "1", B: "two words", EMPTY: "" },
        terminal,
      });
      await environment.close;
      assert.deepEqual(environment.output().toString().trim().split(/\r?\n/).sort(), ["A=1", "B=two words", "EMPTY="]);
    }
  });

  test("makes each process the leader of a POSIX session and process group, with the terminal as its controlling terminal", async () => {
    const script =
      'read -r pid comm state ppid group session tty rest </proc/self/stat; echo "$pid $group $session $tty"';
    const piped = await startChild(["sh", "-c", script]);
    await piped.close;
    const { pid } = piped.child;
    assert.equal(piped.output().toString().trim(), `${pid} ${pid} ${pid} 0`);
    const terminal = await startChild(["sh", "-c", `${script}; tty; echo to-tty >/dev/tty`], {
      terminal: TERMINAL,
    });
    const { pts } = terminal.child.stdioIdentity;
    await terminal.close;
    assert.deepEqual(terminal.child.stdioIdentity, { pipes: [], pts: null });
    const [ids = "", name, last] = terminal.output().toString().trim().split("\r\n");
    const [own, group, session, controlling] = ids.split(" ").map(Number);
    assert.deepEqual([own, group, session], Array(3).fill(terminal.child.pid));
    assert.notEqual(controlling, 0);
    assert.equal(name, `/dev/pts/${pts}`);
    assert.equal(last, "to-tty");
  });

  test("passes no file descriptor and no signal setting to the child", async () => {
    for (const terminal of [null, TERMINAL]) {
      const other = await startChild(["sleep", "100"], { terminal: TERMINAL });
      const script = "ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
      const started = await startChild(["sh", "-c", script], { terminal });
      await started.close;
      const [count, ...signals] = started.output().toString().trim().split(/\r?\n/);
      // Stdin, stdout, stderr and the directory that `ls` reads.
      assert.equal(Number(count), 4);
      for (const line of signals) if (!line.startsWith("SigCgt")) assert.match(line, /:\s+0+$/);
      other.child.signalGroup(9);
      await other.close;
    }
  });

  test("uses /dev/null as stdin without a stdin pipe", async () => {
    const started = await startChild(["sh", "-c", "readlink /proc/self/fd/0; cat"]);
    await started.close;
    assert.equal(started.output().toString(), "/dev/null\n");
  });

  test("reports exit codes, signals and real-time signals", async () => {
    for (const terminal of [null, TERMINAL]) {
      for (const code of [0, 1, 7, 255]) {
        const started = await startChild(["sh", "-c", `exit ${code}`], { terminal });
        assert.deepEqual(await started.exit, { type: "code", code });
        await started.close;
      }
      for (const signal of [1, 2, 6, 9, 11, 15, 34, 40, 64]) {
        const started = await startChild(["sh", "-c", `ulimit -c 0; kill -${signal} $$; sleep 10`], {
          terminal,
        });
        assert.deepEqual(await started.exit, { type: "signal", signal });
        await started.close;
      }
    }
  });

  test("signals the whole process group, and no process after the leader is reaped", async () => {
    const started = await startChild(["sh", "-c", "sleep 100 & sleep 100 & echo $!; wait"]);
    await started.until((output) => output.includes("\n"));
    assert.equal(started.child.signalGroup(15), true);
    assert.deepEqual(await started.exit, { type: "signal", signal: 15 });
    await started.close;
    assert.equal(started.child.signalGroup(15), false);
  });

  test("reports failures if the child's memory is a copy, as under an emulator", async () => {
    addon().forceFork(true);
    try {
      for (const plain of [false, true]) {
        addon().forcePlainPaths(plain);
        assert.equal((await failure(["no-such-program"])).code, "ENOENT");
        const noDirectory = await failure(["true"], { cwd: "/nowhere" });
        assert.deepEqual([noDirectory.code, noDirectory.syscall, noDirectory.path], ["ENOENT", "chdir", "/nowhere"]);
        for (const terminal of [null, TERMINAL]) {
          for (let run = 0; run < 10; run++) {
            const started = await startChild(["sh", "-c", "printf tail; exit 3"], { terminal });
            assert.deepEqual(await started.exit, { type: "code", code: 3 });
            assert.equal(started.outputBeforeExit().toString(), "tail");
            await started.close;
          }
        }
      }
    } finally {
      addon().forcePlainPaths(false);
      addon().forceFork(false);
    }
  });

  test("works on kernels without pidfds", async () => {
    addon().forcePlainPaths(true);
    try {
      for (const terminal of [null, TERMINAL]) {
        for (let run = 0; run < 20; run++) {
          const started = await startChild(["sh", "-c", "printf tail; exit 3"], { terminal });
          assert.deepEqual(await started.exit, { type: "code", code: 3 });
          assert.equal(started.outputBeforeExit().toString(), "tail");
          await started.close;
        }
      }
      assert.equal((await failure(["no-such-program"])).code, "ENOENT");
    } finally {
      addon().forcePlainPaths(false);
    }
  });
});
