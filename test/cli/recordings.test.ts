/** Recordings of a running command, exports of an event log, and replays. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { readCast } from "../../src/client/recording/cast-reader.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { startServer } from "../contract/backends.ts";
import { ENTRY } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

const TIMEOUT = { timeout: 600_000 };
const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());
const file = (name: string) => join(scratch.path, name);
const needsTerminals = skipUnless(loadAddon().type === "loaded", "terminals need the addon");

async function cli(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [ENTRY, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const [code] = await once(child, "close");
  return { code, stdout, stderr };
}

const shownIn = (cast: ReturnType<typeof readCast>) =>
  cast.events
    .filter(({ code }) => code === "o")
    .map(({ data }) => data)
    .join("");

describe("procwire record", TIMEOUT, () => {
  test("writes the output and exit code of a command, and replay shows the output again", {
    skip: needsTerminals,
  }, async () => {
    const path = file("recorded.cast");
    const script = "test -t 1 && echo häppy; echo two; exit 5";
    const recorded = await cli("record", path, "--", "sh", "-c", script);
    assert.deepEqual([recorded.code, recorded.stdout], [5, "häppy\r\ntwo\r\n"], recorded.stderr);
    const text = readFileSync(path, "utf8");
    const header = JSON.parse(text.split("\n")[0] ?? "");
    assert.deepEqual([header.version, header.term], [3, { cols: 80, rows: 24 }]);
    assert.match(header.command, /^sh -c /);
    const cast = readCast(text);
    assert.equal(shownIn(cast), "häppy\r\ntwo\r\n");
    assert.equal(cast.events.at(-1)?.code, "x");
    assert.equal(cast.events.at(-1)?.data, "5");
    assert.equal((await cli("replay", "--speed", "1000", path)).stdout, "häppy\r\ntwo\r\n");
  });

  test("records a running process with --attach, from its screen on, until it exits or SIGINT", {
    skip: needsTerminals,
  }, async () => {
    const server = await startServer("ws://127.0.0.1:0");
    try {
      await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
      const script = "stty -echo; printf 'shown\\n'; while read x && [ $x != end ]; do echo got $x; done; exit 4";
      const size = { rows: 30, cols: 90 };
      const child = await client.start({
        ...{ processId: "p", argv: ["sh", "-c", script], cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: true, size },
      });
      await waitFor(child, "shown");
      const record = (name: string) =>
        spawn(
          process.execPath,
          [ENTRY, "record", "--connect", server.url, "--attach", child.handle ?? "", file(name)],
          {
            stdio: ["ignore", "ignore", "pipe"],
          },
        );
      const written = (name: string) => (existsSync(file(name)) ? readFileSync(file(name), "utf8") : "");
      const [interrupted, whole] = [record("interrupted.cast"), record("whole.cast")];
      const codes = [interrupted, whole].map((one) => once(one, "close"));
      const names = ["interrupted.cast", "whole.cast"];
      await until("both recordings of the screen", () => names.every((name) => written(name).includes("shown")));
      await child.write("one\n");
      await until("the output in both", () => names.every((name) => written(name).includes("got one")));
      interrupted.kill("SIGINT");
      assert.deepEqual(await codes[0], [0, null]);
      await child.write("two\nend\n");
      assert.deepEqual(await codes[1], [4, null]);
      const [short, long] = names.map((name) => readCast(written(name)));
      assert.ok(short && long);
      assert.doesNotMatch(shownIn(short), /got two/);
      assert.match(shownIn(long), /shown.*got one\r\n.*got two\r\n/s);
      assert.deepEqual([long.events.at(-1)?.code, long.events.at(-1)?.data], ["x", "4"]);
      assert.deepEqual(JSON.parse(written("whole.cast").split("\n")[0] ?? "").term, { cols: 90, rows: 30 });
      const exited = await cli("record", "--connect", server.url, "--attach", child.handle ?? "", file("late.cast"));
      assert.match(exited.stderr, /the process has exited; `procwire export` writes its retained output/);
      assert.ok(exited.code !== 0 && !existsSync(file("late.cast")));
    } finally {
      await server.stop();
    }
  });

  test("contains typed input only with --input, and never input that is not echoed", {
    skip: needsTerminals,
  }, async () => {
    await using backend = createLocalBackend();
    // Input just before the echo is disabled may count as not echoed, so the script first reads an irrelevant line.
    const script =
      "printf name:; read n; printf ready:; read r; stty -echo; printf secret:; read s; stty echo; printf again:; read a; echo bye";
    for (const [name, flags] of [
      ["plain", ""],
      ["typed", "--input "],
    ] as const) {
      const path = file(`${name}.cast`);
      const terminal = await backend.start({
        processId: name,
        argv: ["/bin/sh", "-c", `${process.execPath} ${ENTRY} record ${flags}${path} -- sh -c '${script}'`],
        cwd: "/",
        env: { PATH: process.env.PATH ?? "" },
        tty: true,
      });
      for (const [prompt, answer] of [
        ["name:", "willow\r"],
        ["ready:", "y\r"],
        ["secret:", "hunter2\r"],
        ["again:", "maple\r"],
      ] as const) {
        await waitFor(terminal, prompt);
        await terminal.write(Buffer.from(answer));
      }
      await terminal.wait({ timeoutMs: 60_000 });
      const cast = readCast(readFileSync(path, "utf8"));
      const typed = cast.events.filter(({ code }) => code === "i").map(({ data }) => data);
      assert.match(typed.join(""), flags === "" ? /^$/ : /^willow\r(y\r)?maple\r$/);
      assert.match(shownIn(cast), /willow/);
      assert.doesNotMatch(readFileSync(path, "utf8"), /hunter2/);
    }
  });

  test("contains input that was typed before the command started", { skip: needsTerminals }, async () => {
    await using backend = createLocalBackend();
    const path = file("early.cast");
    const terminal = await backend.start({
      processId: "early",
      argv: [process.execPath, ENTRY, "record", "--input", path, "--", "sh", "-c", "read n; echo got $n"],
      cwd: "/",
      env: { PATH: process.env.PATH ?? "" },
      tty: true,
    });
    await terminal.write(Buffer.from("willow\r"));
    await terminal.wait({ timeoutMs: 60_000 });
    const cast = readCast(readFileSync(path, "utf8"));
    const typed = cast.events.filter(({ code }) => code === "i").map(({ data }) => data);
    assert.match(typed.join(""), /^willow[\r\n]$/);
    assert.match(shownIn(cast), /got willow/);
  });

  test("creates no file if the command cannot be started", async () => {
    const path = file("not-started.cast");
    const lost = await cli("record", path, "--connect", "ws://127.0.0.1:1", "--", "true");
    assert.notEqual(lost.code, 0);
    assert.equal(existsSync(path), false, lost.stderr);
  });

  test("requires a file and a command", async () => {
    const { code, stderr } = await cli("record", file("none.cast"));
    assert.deepEqual([code, /give a FILE, then -- and a command/.test(stderr)], [2, true]);
  });
});

describe("procwire export", TIMEOUT, () => {
  test("creates a recording of a process from its event log, with the original times", async () => {
    const server = await startServer("ws://127.0.0.1:0");
    const client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const child = await client.start({
      processId: "p",
      argv: ["/bin/sh", "-c", "echo one; read x; echo two; exit 3"],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: false,
      pipeStdin: true,
    });
    await waitFor(child, "one");
    await child.write(Buffer.from("go\n"));
    await child.wait();
    const connect = ["--connect", server.url];
    const path = file("exported.cast");
    const handle = String(child.handle);
    const exported = await cli("export", ...connect, handle, path);
    assert.deepEqual([exported.code, exported.stderr], [0, ""]);
    const written = readFileSync(path, "utf8");
    const cast = readCast(written);
    assert.equal(shownIn(cast), "one\r\ntwo\r\n");
    assert.equal(cast.events.at(-1)?.data, "3");
    const { times = [] } = await child.read({ times: true });
    assert.deepEqual(
      cast.events.filter(({ code }) => code === "o").map(({ atMs }) => Math.round(atMs)),
      times,
    );
    const replayed = await cli("replay", ...connect, "--idle-limit", "0.01", handle.slice(0, 6));
    assert.equal(replayed.stdout, "one\r\ntwo\r\n");
    const refused = await cli("export", ...connect, handle, path);
    assert.deepEqual(
      [refused.code, refused.stderr, readFileSync(path, "utf8")],
      [1, `procwire export: export ${path}: the file exists; --force overwrites it\n`, written],
    );
    writeFileSync(path, "old");
    assert.equal((await cli("export", ...connect, "--force", handle, path)).code, 0);
    assert.equal(readFileSync(path, "utf8"), written);
    const out = await cli("export", ...connect, handle, "-");
    assert.equal(out.stdout, readFileSync(path, "utf8"));
    await client.close();
    await server.stop();
  });
});

describe("recording of a resized terminal", TIMEOUT, () => {
  test("has each size before the output that was written at it", {
    skip: needsTerminals,
  }, async () => {
    const server = await startServer("ws://127.0.0.1:0");
    const owner = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const child = await owner.start({
      processId: "p",
      argv: ["/bin/sh", "-c", "trap 'stty size' WINCH; stty -echo; stty size; while :; do read x && exit 0; done"],
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      tty: true,
      size: { rows: 10, cols: 20 },
    });
    await waitFor(child, "10 20");
    const other = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const driver = await other.attach(String(child.handle), { role: "driver", size: { rows: 11, cols: 30 } });
    await waitFor(child, "11 30");
    const sizes = [0, 1, 2, 3, 4].map((round) => ({ rows: 12 + round, cols: 40 + round }));
    for (const { rows, cols } of sizes) {
      await driver.resize({ rows, cols });
      await waitFor(child, `${rows} ${cols}`);
    }
    const path = file("resized.cast");
    const exported = await cli("export", "--connect", server.url, String(child.handle), path);
    assert.deepEqual([exported.code, exported.stderr], [0, ""]);
    const cast = readCast(readFileSync(path, "utf8"));
    assert.deepEqual(cast.size, { rows: 10, cols: 20 });
    // The recording has the sizes that the process received, in the same order.
    const expected = [
      "10 20",
      ...[{ rows: 11, cols: 30 }, ...sizes].flatMap(({ rows, cols }) => [`r ${cols}x${rows}`, `${rows} ${cols}`]),
    ];
    const found = cast.events.flatMap(({ code, data }) =>
      code === "r" ? [`r ${data}`] : data.split("\r\n").filter((line) => line !== ""),
    );
    assert.deepEqual(found, expected);
    const times = cast.events.map(({ atMs }) => atMs);
    assert.deepEqual(
      times,
      times.toSorted((one, next) => one - next),
    );
    await driver.write(Buffer.from("\n"));
    await child.wait();
    await other.close();
    await owner.close();
    await server.stop();
  });
});

describe("procwire export --input", TIMEOUT, () => {
  test("contains the input of a command started with --record-input, and no secret in hundreds of tries", {
    skip: needsTerminals,
  }, async (t) => {
    const server = await startServer("ws://127.0.0.1:0");
    t.after(() => server.stop());
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const connect = ["--connect", server.url];
    const rounds = 200;
    // The program disables and enables echo around each reply, as fast as it can.
    const script = `for ((i = 0; i < ${rounds}; i++)); do
      stty -echo; printf 's%d:' $i; IFS= read -r s; stty echo; printf 'n%d:' $i; IFS= read -r n; done; read -r end`;
    const run = await cli("run", ...connect, "--detach", "--tty", "--record-input", "--", "bash", "-c", script);
    const handle = run.stdout.trim();
    const child = await client.attach(handle, { role: "driver" });
    const output = child.events();
    let shown = "";
    const sees = async (text: string) => {
      while (!shown.includes(text)) {
        const { value, done } = await output.next();
        assert.ok(!done);
        if (value.type === "output") shown += Buffer.from(value.chunk).toString();
      }
    };
    for (let i = 0; i < rounds; i++) {
      await sees(`s${i}:`);
      await child.write(Buffer.from(`hunter${i}\n`));
      await sees(`n${i}:`);
      await child.write(Buffer.from(`word${i}\n`));
    }
    const exported = await cli("export", ...connect, "--input", handle, "-");
    const cast = readCast(exported.stdout);
    const typed = cast.events.filter(({ code }) => code === "i").map(({ data }) => data);
    assert.doesNotMatch(exported.stdout, /hunter/);
    // The recording also omits a word if echo was disabled right after it, because the word could be a secret.
    const words = Array.from({ length: rounds }, (_, i) => `word${i}\n`);
    assert.deepEqual(
      typed,
      words.filter((word) => typed.includes(word)),
    );
    assert.ok(typed.length > rounds / 2, `${typed.length} of ${rounds} words`);
    const plain = await cli("export", ...connect, handle, "-");
    assert.deepEqual(
      readCast(plain.stdout).events.filter(({ code }) => code === "i"),
      [],
    );
    const { inputs } = await child.inputs();
    assert.equal(
      inputs.reduce((sum, { bytes }) => sum + bytes, 0),
      Array.from({ length: rounds }, (_, i) => `hunter${i}\nword${i}\n`.length).reduce((a, b) => a + b, 0),
    );
    assert.ok(inputs.every(({ role, principal }) => role === "driver" && principal === "local"));
    await client.kill(handle);
  });
});

describe("procwire record and replay", TIMEOUT, () => {
  test("refuse to overwrite a recording without --force, and write version 2 with --format", {
    skip: needsTerminals,
  }, async () => {
    const path = file("once.cast");
    writeFileSync(path, "precious");
    const refused = await cli("record", path, "--", "echo", "lost");
    assert.deepEqual(
      [refused.code, refused.stderr, readFileSync(path, "utf8")],
      [1, `procwire record: record ${path}: the file exists; --force overwrites it\n`, "precious"],
    );
    const forced = await cli("record", "--force", "--format", "asciicast-v2", path, "--", "echo", "two");
    assert.equal(forced.code, 0, forced.stderr);
    const { version, size, events } = readCast(readFileSync(path));
    assert.deepEqual([version, size, events.map(({ data }) => data).join("")], [2, { rows: 24, cols: 80 }, "two\r\n"]);
    assert.equal((await cli("record", "/dev/null", "--", "true")).code, 0);
    const wrong = await cli("record", "--format", "gif", file("x.gif"), "--", "true");
    assert.deepEqual([wrong.code, /unknown --format `gif`; expected asciicast-v2/.test(wrong.stderr)], [2, true]);
  });

  test("play the complete events of a truncated recording, and reject another file", async () => {
    const path = file("truncated.cast");
    writeFileSync(path, '{"version":3,"term":{"cols":9,"rows":3}}\n[0,"o","one "]\n[0,"o","two"]\n[0.1,"o","thr');
    const { code, stdout, stderr } = await cli("replay", path);
    assert.deepEqual(
      [code, stdout, stderr],
      [0, "one two", `procwire replay: ${path} is truncated; playing its complete events (2)\n`],
    );
    writeFileSync(path, "nothing");
    const rejected = await cli("replay", path);
    const reason = `${path}: not an asciicast: line 1 is not JSON`;
    assert.deepEqual([rejected.code, rejected.stderr], [1, `procwire replay: ${reason}\n`]);
    const missing = await cli("replay", "missing.cast", "--connect", "unix:///no/server");
    assert.deepEqual([missing.code, missing.stderr], [1, "procwire replay: no such file: missing.cast\n"]);
  });
});

describe("procwire doctor", TIMEOUT, () => {
  test("reports whether each feature works, and how to fix the others", async () => {
    const { code, stdout } = await cli("doctor", "--json");
    const findings = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { name: string; works: boolean; fix?: string });
    assert.deepEqual(
      findings.map(({ name }) => name),
      ["node", "addon", "terminals", "watchdog", "bubblewrap", "landlock", "cgroup memory", "cgroup pids"],
    );
    for (const { name, works, fix } of findings) assert.equal(fix === undefined, works, name);
    const has = (name: string) => findings.find((one) => one.name === name)?.works;
    assert.equal(has("addon"), loadAddon().type === "loaded");
    assert.equal(code, has("node") ? 0 : 1);
    const text = await cli("doctor");
    assert.match(text.stdout, /^ok {3}node: v\d+/);
  });
});
