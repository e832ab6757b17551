import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { manyRuns, NO_ADDON, startChild, TERMINAL } from "./started.ts";

const scratch = mkdtempSync(join(tmpdir(), "procwire-streams-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

const everyByte = Buffer.from(Array.from({ length: 256 }, (_, value) => value));
const allBytes = Buffer.concat(Array.from({ length: 16 }, () => everyByte));
const allBytesFile = join(scratch, "all-bytes");
writeFileSync(allBytesFile, allBytes);

describe("streams of a started process", { skip: NO_ADDON }, () => {
  test("carry every byte value unchanged, over pipes and over a raw terminal, 200 times each", async () => {
    await manyRuns(200, 4, async () => {
      const piped = await startChild(["cat", allBytesFile]);
      await piped.close;
      assert.ok(piped.output("stdout").equals(allBytes));
      const terminal = await startChild(["sh", "-c", `stty raw; exec cat ${allBytesFile}`], {
        terminal: TERMINAL,
      });
      await terminal.close;
      assert.ok(terminal.output("pty").equals(allBytes));
    });
  });

  test("accept every byte value as input through a raw terminal", async () => {
    await manyRuns(20, 4, async () => {
      const started = await startChild(["sh", "-c", "stty raw -echo; printf R; exec head -c 4096"], {
        terminal: TERMINAL,
      });
      await started.until((output) => output.includes("R"));
      started.child.input.write(allBytes);
      await started.close;
      assert.ok(started.output("pty").subarray(1).equals(allBytes));
    });
  });

  test("separate stdout and stderr, and are pipes", async () => {
    const started = await startChild([
      "sh",
      "-c",
      "echo out; echo err >&2; echo again >/dev/stderr; readlink /proc/self/fd/1",
    ]);
    await started.close;
    assert.match(started.output("stdout").toString(), /^out\npipe:\[\d+\]\n$/);
    assert.equal(started.output("stderr").toString(), "err\nagain\n");
  });

  test("queue 1 MiB of input in order for a process that does not read yet, and emit drain, 200 times", async () => {
    const part = Buffer.alloc(64 * 1024);
    const parts = 16;
    await manyRuns(200, 2, async () => {
      const started = await startChild(["sh", "-c", "read line; exec cat"], { pipeStdin: true });
      started.child.input.write(Buffer.from("\n"));
      // The output is not read, so that cat blocks and stops reading after a while.
      started.child.pause();
      for (let at = 0; at < parts; at++) started.child.input.write(part.fill(at));
      assert.ok(started.child.input.queuedBytes > 0, "a pipe cannot have taken all of it");
      const drained = started.drained();
      started.child.resume();
      await drained;
      started.child.input.close();
      await started.close;
      const output = started.output();
      assert.equal(output.length, parts * part.length);
      for (let at = 0; at < parts; at++)
        assert.ok(output.subarray(at * part.length, (at + 1) * part.length).equals(part.fill(at)), `part ${at}`);
    });
  });

  test("echo 64 KiB through a raw terminal and line by line through a cooked one", async () => {
    const line = `${"x".repeat(1000)}\n`;
    const lines = Buffer.from(line.repeat(64));
    await manyRuns(40, 4, async () => {
      const raw = await startChild(["sh", "-c", `stty raw -echo; printf R; exec head -c ${lines.length}`], {
        terminal: TERMINAL,
      });
      await raw.until((output) => output.includes("R"));
      raw.child.input.write(lines);
      await raw.close;
      assert.ok(raw.output().subarray(1).equals(lines));
      const cooked = await startChild(["sh", "-c", "stty -echo; printf R; exec cat"], { terminal: TERMINAL });
      await cooked.until((output) => output.includes("R"));
      cooked.child.input.write(lines);
      cooked.child.input.close();
      await cooked.close;
      assert.equal(cooked.output().subarray(1).toString().replaceAll("\r\n", "\n"), lines.toString());
    });
  });

  test("close stdin only after the queue is flushed", async () => {
    const bytes = Buffer.alloc(512 * 1024, 7);
    const started = await startChild(["sh", "-c", "sleep 0.05; wc -c"], { pipeStdin: true });
    started.child.input.write(bytes);
    started.child.input.close();
    await started.close;
    assert.equal(started.output().toString().trim(), String(bytes.length));
  });

  test("end the input of a terminal with its EOF character, also after a partial line", async () => {
    for (const text of ["", "whole line\n", "unfinished"]) {
      const started = await startChild(["sh", "-c", "stty -echo; printf R; exec wc -c"], {
        terminal: TERMINAL,
      });
      await started.until((output) => output.includes("R"));
      started.child.input.write(Buffer.from(text));
      started.child.input.close();
      await started.close;
      assert.equal(started.output().toString().slice(1).trim(), String(text.length), JSON.stringify(text));
    }
  });

  test("drop input without an error after stdin is closed or the process exited", async () => {
    const closed = await startChild(["sh", "-c", "exec 0<&-; echo closed; sleep 0.1"], { pipeStdin: true });
    await closed.until((output) => output.includes("closed"));
    closed.child.input.write(Buffer.alloc(1024 * 1024));
    assert.equal(closed.child.input.queuedBytes, 0);
    await closed.close;
    closed.child.input.write(Buffer.from("late"));
    assert.equal(closed.child.input.queuedBytes, 0);

    const full = await startChild(["sleep", "100"], { pipeStdin: true });
    full.child.input.write(Buffer.alloc(1024 * 1024));
    assert.ok(full.child.input.queuedBytes > 0);
    full.child.signalGroup(9);
    await full.close;
    full.child.input.write(Buffer.from("late"));
    assert.equal(full.child.input.queuedBytes, 0);
  });

  test("set the size of a terminal at the start, and signal the process when it changes", async () => {
    const script = 'trap "stty size" WINCH; stty size; while :; do sleep 0.02; done';
    const started = await startChild(["sh", "-c", script], { terminal: { rows: 31, cols: 101 } });
    await started.until((output) => output.includes("31 101"));
    started.child.resize({ rows: 40, cols: 120 });
    await started.until((output) => output.includes("40 120"));
    started.child.signalGroup(9);
    await started.close;
  });

  test("report echo and canonical mode of a terminal", async () => {
    const started = await startChild(
      ["sh", "-c", "printf A; read x; stty -echo -icanon; printf B; read x; sleep 100"],
      {
        terminal: TERMINAL,
      },
    );
    await started.until((output) => output.includes("A"));
    assert.deepEqual(started.child.ttyState(), { rows: 24, cols: 80, echo: true, canonical: true });
    started.child.input.write(Buffer.from("\n"));
    await started.until((output) => output.includes("B"));
    assert.deepEqual(started.child.ttyState(), { rows: 24, cols: 80, echo: false, canonical: false });
    started.child.signalGroup(9);
    await started.close;
    assert.equal(started.child.ttyState(), null);
  });

  test("keep a terminal open for a leader that closes all descriptors and opens the terminal again", async () => {
    const script = "exec </dev/null >/dev/null 2>&1; sleep 0.1; echo back >/dev/tty";
    const started = await startChild(["sh", "-c", script], { terminal: TERMINAL });
    await started.close;
    assert.equal(started.output().toString(), "back\r\n");
    assert.deepEqual(await started.exit, { type: "code", code: 0 });
  });

  test("use almost no CPU time while bulk output is paused, and lose none of it", async () => {
    for (const terminal of [null, TERMINAL]) {
      let bytes = 0;
      const started = await startChild(["sh", "-c", "exec head -c 4000000 /dev/zero"], { terminal }, (_, chunk) => {
        bytes += chunk.length;
        if (bytes === chunk.length) started.child.pause();
      });
      await started.until((output) => output.length > 0);
      const [before, startedAt] = [process.cpuUsage(), performance.now()];
      // The interval in which the processor time is measured, not a wait for a condition.
      await delay(300);
      const { user, system } = process.cpuUsage(before);
      const wallMs = performance.now() - startedAt;
      // A reader that spins on a full stream uses all CPU time.
      assert.ok((user + system) / 1000 < wallMs / 2, `${(user + system) / 1000} ms of ${wallMs}`);
      started.child.resume();
      await started.close;
      assert.equal(bytes, 4_000_000);
    }
  });

  test("combine the lines of a process that prints continuously, and deliver replies to input at once", async () => {
    const lines = 20_000;
    const script = `i=0; while [ $i -lt ${lines} ]; do echo line; i=$((i+1)); done`;
    let chunks = 0;
    const started = await startChild(["sh", "-c", script], {}, () => chunks++);
    await started.close;
    assert.equal(started.output().length, lines * 5);
    assert.ok(chunks < lines / 10, `${chunks} chunks for ${lines} lines`);
  });

  test("can be closed while a descendant in another POSIX session holds them open", async () => {
    const started = await startChild(["sh", "-c", "setsid sleep 60 & echo $!"]);
    await started.exit;
    const holder = Number(started.output().toString());
    assert.ok(holder > 0);
    started.child.closeStreams();
    await started.close;
    process.kill(holder, "SIGKILL");
  });
});
