/** Recordings of a running command, exports of an event log, and replays. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { CastWriter, readCast } from "../../src/client/recording/asciicast.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/addon.ts";
import { startServer } from "../contract/backends.ts";
import { ENTRY } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

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
    const cast = readCast(readFileSync(path, "utf8"));
    assert.equal(shownIn(cast), "one\r\ntwo\r\n");
    assert.equal(cast.events.at(-1)?.data, "3");
    const { times = [] } = await child.read({ times: true });
    assert.deepEqual(
      cast.events.filter(({ code }) => code === "o").map(({ atMs }) => Math.round(atMs)),
      times,
    );
    const replayed = await cli("replay", ...connect, "--idle-limit", "0.01", handle.slice(0, 6));
    assert.equal(replayed.stdout, "one\r\ntwo\r\n");
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

describe("asciicast", () => {
  test("has times since the start in version 2, and since the previous event in version 3", () => {
    const two = '{"version":2,"width":90,"height":30}\n[0.5,"o","a"]\n[0.75,"o","b"]\n';
    const three = '{"version":3,"term":{"cols":90,"rows":30}}\n# a comment\n[0.5,"o","a"]\n[0.25,"o","b"]\n';
    assert.deepEqual(readCast(two), readCast(three));
    assert.deepEqual(
      readCast(two).events.map(({ atMs }) => atMs),
      [500, 750],
    );
    assert.deepEqual(readCast(two).size, { rows: 30, cols: 90 });
  });

  test("parses to the events that were written, even if a character was split between chunks", () => {
    const lines: string[] = [];
    const size = { rows: 3, cols: 4 };
    const writer = new CastWriter({ size, startedAtMs: 5000, command: "x" }, (line) => lines.push(line));
    const euro = Buffer.from("€");
    writer.output(10, euro.subarray(0, 1));
    writer.output(20, euro.subarray(1));
    writer.resized(30, { rows: 5, cols: 6 });
    writer.output(40, Buffer.from("\x1b[2J\xff", "latin1"));
    writer.exited(50, 9);
    assert.deepEqual(readCast(lines.join("")), {
      size,
      events: [
        { atMs: 20, code: "o", data: "€" },
        { atMs: 30, code: "r", data: "6x5" },
        { atMs: 40, code: "o", data: "\x1b[2J\ufffd" },
        { atMs: 50, code: "x", data: "9" },
      ],
    });
  });

  test("is rejected with the reason if it is invalid", async () => {
    for (const [text, problem] of [
      ["", /line 1 is not JSON/],
      ['{"version":1}', /not a header of version 2 or 3/],
      ['{"version":3}', /does not give the size of the terminal/],
      ['{"version":2,"width":1,"height":1}\n[1,"o"]', /line 2 is not \[time, code, data\]/],
    ] as const)
      assert.throws(() => readCast(text), problem);
    const path = file("broken.cast");
    writeFileSync(path, "nothing");
    const { code, stderr } = await cli("replay", path);
    assert.deepEqual([code, stderr], [1, "procwire replay: not an asciicast: line 1 is not JSON\n"]);
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
      ["node", "addon", "terminals", "watchdog", "bubblewrap", "cgroup memory", "cgroup pids"],
    );
    for (const { name, works, fix } of findings) assert.equal(fix === undefined, works, name);
    const has = (name: string) => findings.find((one) => one.name === name)?.works;
    assert.equal(has("addon"), loadAddon().type === "loaded");
    assert.equal(code, has("node") ? 0 : 1);
    const text = await cli("doctor");
    assert.match(text.stdout, /^ok {3}node: v\d+/);
  });
});
