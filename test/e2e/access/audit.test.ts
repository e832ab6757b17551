/** `--audit FILE` of a real server: one line per decision, with the principal and the process. */

import assert from "node:assert/strict";
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { secretPath, writeSecret } from "../../support/auth/secret-file.ts";
import { SmallDisk, whyNoSmallDisk } from "../../support/faults/small-disk.ts";
import { DatagramReceiver, whyNoDatagramReceiver } from "../../support/servers/datagram-receiver.ts";
import { sh, startParams } from "../../support/servers/raw-connection.ts";
import { runCli, startCli } from "../../support/servers/run-cli.ts";
import { PROCWIRE, ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

type Line = Record<string, unknown>;

const linesOf = (path: string): Line[] =>
  readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

const without = (line: Line | undefined, ...keys: string[]) =>
  Object.fromEntries(Object.entries(line ?? {}).filter(([key]) => !keys.includes(key)));

const audit = (...args: string[]) => runCli(["audit", ...args], { cwd: "/tmp" });

const missingReceiver = whyNoDatagramReceiver();
const noReceiver = skipUnless(missingReceiver === null, missingReceiver ?? "");
const noSmallDisk = whyNoSmallDisk();
const noDisk = skipUnless(noSmallDisk === null, noSmallDisk ?? "");

describe("an audited server", () => {
  test("logs each start, write, signal, attach, takeover and end with the principal and the process", async () => {
    using scratch = scratchDirectory();
    const path = secretPath(scratch.path, "audit.jsonl");
    const tokens = ["t".repeat(40), "o".repeat(40)].map((token, at) => {
      return { token, file: writeSecret(scratch.path, `token-${at}`, token) };
    });
    const [user, operator] = tokens;
    assert.ok(user && operator);
    await using server = await serve(
      ...["--audit", path, "--ws-auth", "capability-token", "--ws-token-file", user.file],
      ...["--operator-token-file", operator.file],
    );
    await using owner = await server.connect({ authorization: `Bearer ${user.token}` });
    await owner.handshake({ extensions: ["attach"] });
    const started = await owner.call("process/start", startParams("cat", ["cat"], { pipeStdin: true }));
    const { handle } = started;
    await owner.call("process/write", { processId: "cat", chunk: "aGVsbG8=", writeId: "w" });
    const refused = await owner.request("process/start", startParams("none", ["/nonexistent"]));
    assert.ok(refused.error);
    await using other = await server.connect({ authorization: `Bearer ${operator.token}` });
    await other.handshake({ extensions: ["attach"] });
    await other.call("process/attach", { handle, role: "viewer" });
    await other.call("process/attach", { handle, role: "driver" });
    await other.call("process/write", { processId: handle, chunk: "eA==" });
    await other.call("process/signal", { processId: handle, signal: "SIGTERM" });
    await until("its end is written", () => linesOf(path).some(({ event }) => event === "process/ended"));
    const lines = linesOf(path);
    for (const { time } of lines) assert.match(String(time), /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    const acts: Line[] = lines.map((line) => without(line, "time", "seq", "prev", "pid", "version", "client"));
    const one = { principal: "token", session: 1, outcome: "allowed" };
    const two = { principal: "operator", session: 2, outcome: "allowed" };
    const cat = { processId: "cat", handle };
    const attached = { processId: handle, handle };
    const none = { processId: "none", argv: ["/nonexistent"], cwd: "file:///tmp", tty: false };
    const failure = acts[4]?.reason;
    assert.deepEqual(acts, [
      { event: "log/opened" },
      { ...one, event: "initialize", change: "opened" },
      { ...one, event: "process/start", ...cat, argv: ["cat"], cwd: "file:///tmp", tty: false },
      { ...one, event: "process/write", ...cat, bytes: 5 },
      { ...one, event: "process/start", ...none, outcome: "failed", reason: failure },
      { ...two, event: "initialize", change: "opened" },
      { ...two, event: "process/attach", ...attached, role: "viewer" },
      { ...two, event: "process/attach", ...attached, role: "driver" },
      { ...two, event: "process/write", ...attached, bytes: 1 },
      { ...two, event: "process/signal", ...attached, signal: "SIGTERM" },
      { event: "process/ended", ...cat, exitCode: 143, signal: "SIGTERM", reason: "signaled" },
    ]);
    assert.match(String(failure), /No such file/);
    assert.doesNotMatch(readFileSync(path, "utf8"), /aGVsbG8|hello|tttt|oooo/);
  });

  test("logs v0 processes too, and creates a new file after its file was moved", async () => {
    using scratch = scratchDirectory();
    const path = secretPath(scratch.path, "audit.jsonl");
    await using server = await serve("--audit", path);
    await using client = await server.connect();
    await client.handshake();
    await client.call("command/exec", { argv: sh("exit 3"), cwd: "/", env: {}, tty: false });
    await until("its end is written", () => linesOf(path).some(({ event }) => event === "process/ended"));
    assert.deepEqual(
      linesOf(path).map(({ event, processId, exitCode }) => [event, processId, exitCode]),
      [
        ["log/opened", undefined, undefined],
        ["initialize", undefined, undefined],
        ["command/exec", "session-1", undefined],
        ["process/ended", "session-1", 3],
      ],
    );
    renameSync(path, `${path}.1`);
    await until("a new file is begun", async () => {
      await client.call("command/exec", { argv: ["true"], cwd: "/", env: { PATH: "/bin" }, tty: false });
      try {
        return linesOf(path).length > 0;
      } catch {
        return false;
      }
    });
    await server.stop();
    const { code, stdout, stderr } = await audit("verify", `${path}.1`, path);
    assert.match(stdout, /^ok: \d+ lines, seq 1 to \d+, last digest [0-9a-f]{64}\n$/);
    assert.deepEqual([code, stderr], [0, ""]);
  });

  test("records a refused call before the handshake without a session", async () => {
    using scratch = scratchDirectory();
    const path = secretPath(scratch.path, "audit.jsonl");
    await using server = await serve("--audit", path);
    await using client = await server.connect();
    const refused = await client.request("process/start", startParams("early", ["true"]));
    assert.ok(refused.error);
    await until("the refusal is written", () => linesOf(path).some(({ event }) => event === "process/start"));
    const { principal, session, outcome } = linesOf(path).find(({ event }) => event === "process/start") ?? {};
    assert.deepEqual([typeof principal, session, outcome], ["string", null, "refused"]);
  });

  test("logs files, HTTP requests, sign-ins and rejected tokens, without content, query strings and secrets", async () => {
    using scratch = scratchDirectory();
    const path = secretPath(scratch.path, "audit.jsonl");
    const token = "t".repeat(40);
    const tokenFile = writeSecret(scratch.path, "token", token);
    const auth = ["--ws-auth", "capability-token", "--ws-token-file", tokenFile];
    await using server = await serve("--audit", path, "--web", ...auth);
    await using client = await server.connect({ authorization: `Bearer ${token}` });
    await client.handshake();
    const file = `file://${scratch.path}/f`;
    await client.call("fs/writeFile", { path: file, dataBase64: "c2VjcmV0IGZpbGU=" });
    await client.request("fs/readFile", { path: `${file}-missing` });
    await client.request("fs/open", { handleId: "h", path: file, mode: "read" });
    const url = "http://user:hidden@127.0.0.1:1/a?key=hidden#hidden";
    const headers = [{ name: "x-key", value: "hidden" }];
    await client.request("http/request", { requestId: "r", method: "GET", url, headers });
    await client.request("forward/open", { streamId: "s", host: "10.0.0.1", port: 80 });
    await assert.rejects(server.connect({ authorization: `Bearer ${"w".repeat(40)}` }));
    const origin = server.url.replace(/^ws/, "http");
    const post = (at: string, body: unknown, bearer = "") =>
      fetch(`${origin}${at}`, {
        method: "POST",
        headers: { origin, authorization: `Bearer ${bearer}` },
        body: JSON.stringify(body),
      });
    assert.equal((await post("/api/sign-in", { token: "wrong" })).status, 401);
    const { secret } = (await (await post("/api/sign-in", { token })).json()) as { secret: string };
    const link = (await (await post("/api/devices/link", {}, secret)).json()) as { token: string };
    assert.equal((await post("/api/sign-out", {}, secret)).status, 204);
    await client.call("console/login", {});
    const acts = linesOf(path).slice(2);
    assert.deepEqual(
      acts.map((line) => [line.event, line.outcome, line.principal, line.path ?? line.url ?? line.target]),
      [
        ["fs/writeFile", "allowed", "token", file],
        ["fs/readFile", "failed", "token", `${file}-missing`],
        ["fs/open", "allowed", "token", file],
        ["http/request", "failed", "token", "http://127.0.0.1:1/a"],
        ["forward/open", "refused", "token", "10.0.0.1:80"],
        ["authentication", "refused", undefined, undefined],
        ["console/signIn", "refused", undefined, undefined],
        ["console/signIn", "allowed", "token", undefined],
        ["console/deviceLink", "allowed", "token", undefined],
        ["console/signOut", "allowed", "token", undefined],
        ["console/login", "allowed", "token", undefined],
      ],
    );
    assert.match(String(acts[5]?.peer), /^127\.0\.0\.1:\d+$/);
    assert.match(String(acts[5]?.reason), /invalid websocket bearer token/);
    const text = readFileSync(path, "utf8");
    for (const hidden of ["c2VjcmV0", "secret file", "hidden", token, "wwww", secret, link.token])
      assert.ok(!text.includes(hidden), hidden);
  });

  test("keeps its chain when the server is killed, and rejects a second server on the same file", async () => {
    using scratch = scratchDirectory();
    const path = secretPath(scratch.path, "audit.jsonl");
    {
      await using server = await serve("--audit", path);
      const second = await startCli(["serve", "--listen", "ws://127.0.0.1:0", "--audit", path], { cwd: "/tmp" }).ended;
      assert.equal(second.code, 2);
      assert.match(
        second.stderr,
        /^procwire serve: --audit .*: another server writes this file; give each server its own/,
      );
      await using client = await server.connect();
      await client.handshake();
      const exec = () =>
        client.request("command/exec", { argv: ["true"], cwd: "/", env: { PATH: "/bin" }, tty: false });
      const flood = Array.from({ length: 50 }, () => exec().catch(() => undefined));
      await Promise.race(flood);
      process.kill(server.serverPid(), "SIGKILL");
      await server.exited;
      await Promise.all(flood);
    }
    // The beginning of a line, as a crash of the host may leave it.
    appendFileSync(path, '{"seq":');
    {
      await using server = await serve("--audit", path);
      await using client = await server.connect();
      await client.handshake();
    }
    assert.match(readFileSync(path, "utf8"), /\n\{"seq":\n\{[^\n]*"event":"log\/fragment","bytes":7/);
    const valid = await audit("verify", path);
    assert.equal(valid.code, 0, valid.stderr);
    const lines = readFileSync(path, "utf8").split("\n");
    const index = lines.findIndex((line) => line.includes('"allowed"'));
    writeFileSync(path, lines.with(index, (lines[index] ?? "").replace('"allowed"', '"refused"')).join("\n"));
    const changed = await audit("verify", path);
    assert.deepEqual([changed.code, changed.stdout], [1, ""]);
    assert.match(changed.stderr, new RegExp(`audit\\.jsonl:${index + 1}: seq ${index + 1} was changed`));
    const digest = /last digest (\w+)/.exec(valid.stdout)?.[1] ?? "";
    writeFileSync(path, `${lines.slice(0, -2).join("\n")}\n`);
    const cut = await audit("verify", "--last-digest", digest, path);
    assert.equal(cut.code, 1);
    assert.match(cut.stderr, /end was cut/);
  });

  test("continues its chain across rotation and restart, and verify finds a missing, moved and duplicated line", async () => {
    using scratch = scratchDirectory();
    const path = secretPath(scratch.path, "audit.jsonl");
    for (const rotated of ["2", "1"]) {
      await using server = await serve("--audit", path);
      await using client = await server.connect();
      await client.handshake();
      for (const name of ["a", "b"]) await client.request("fs/getMetadata", { path: `file:///${name}` });
      await server.stop();
      renameSync(path, `${path}.${rotated}`);
    }
    const files = [`${path}.2`, `${path}.1`];
    const valid = await audit("verify", ...files);
    assert.deepEqual([valid.code, valid.stderr], [0, ""]);
    assert.match(valid.stdout, /^ok: 8 lines, seq 1 to 8, last digest /);
    const exchanged = await audit("verify", ...files.toReversed());
    assert.deepEqual([exchanged.code, exchanged.stdout], [1, ""], exchanged.stderr);
    const missing = await audit("verify", "--last-digest", "f".repeat(64), ...files);
    assert.equal(missing.code, 1);
    const lines = readFileSync(`${path}.1`, "utf8").trimEnd().split("\n");
    const [first = "", second = "", third = "", fourth = ""] = lines;
    for (const [what, changed, problem] of [
      ["missing", [first, third, fourth], /audit\.jsonl\.1:2: .*seq 6/],
      ["moved", [first, third, second, fourth], /audit\.jsonl\.1:2: /],
      ["duplicated", [first, second, second, third, fourth], /audit\.jsonl\.1:3: /],
    ] as const) {
      writeFileSync(`${path}.1`, `${changed.join("\n")}\n`);
      const { code, stdout, stderr } = await audit("verify", ...files);
      assert.deepEqual([code, stdout], [1, ""], what);
      assert.match(stderr, problem, what);
    }
  });

  test("executes nothing and reports itself as degraded while the disk is full", { skip: noDisk }, async () => {
    using scratch = scratchDirectory();
    const directory = join(scratch.path, "disk");
    mkdirSync(directory);
    await using disk = await SmallDisk.at(directory, 4 * 1024 * 1024);
    const [program = "", ...words] = [...disk.under(scratch.path), PROCWIRE, "serve"];
    const args = ["--listen", "ws://127.0.0.1:0", "--audit", join(directory, "audit.jsonl")];
    await using server = await new ServeChild(args, { command: [program, ...words] }).listening();
    await using client = await server.connect();
    await client.handshake();
    disk.fill();
    const touch = (id: string) =>
      client.request("process/start", startParams(id, sh("echo x >> touched"), { cwd: `file://${scratch.path}` }));
    // Reserved space holds the lines of the first calls.
    const long = `file:///${"x".repeat(4000)}`;
    await until("a call to be refused", async () => {
      const { error } = await client.request("fs/getMetadata", { path: long });
      return error?.message.includes("audit log") === true;
    });
    const { error } = await touch("refused");
    assert.match(
      error?.message ?? "",
      /^process\/start refused: cannot write the audit log \(ENOSPC\); nothing was executed; .*--audit/,
    );
    const health = async () => (await fetch(`${server.url.replace(/^ws/, "http")}/healthz`)).text();
    assert.match(await health(), /"degraded":\[.*audit log cannot be written \(ENOSPC\)/);
    disk.makeRoom();
    assert.equal((await touch("started")).error, undefined);
    assert.doesNotMatch(await health(), /audit/);
    const touched = join(scratch.path, "touched");
    await until("the process to write", () => existsSync(touched) && readFileSync(touched, "utf8") === "x\n");
    const path = join(disk.directory, "audit.jsonl");
    assert.equal(linesOf(path).filter(({ event }) => event === "process/start").length, 1);
    const resumed = linesOf(path).find(({ event }) => event === "log/resumed");
    assert.deepEqual([resumed?.reason, resumed?.refusedCalls], ["ENOSPC", 2]);
    const { code, stderr } = await audit("verify", path);
    assert.equal(code, 0, stderr);
  });

  test("sends each line to its second sink, whose last line reveals a cut end", { skip: noReceiver }, async () => {
    using scratch = scratchDirectory();
    const [path, socket, received] = ["audit.jsonl", "sink", "received"].map((name) => secretPath(scratch.path, name));
    assert.ok(path && socket && received);
    await using receiver = await DatagramReceiver.at(socket);
    {
      await using server = await serve("--audit", path, "--audit-sink", `unix://${socket}`, "--metrics");
      await using client = await server.connect();
      await client.handshake();
      const metrics = await (await fetch(`${server.url.replace(/^ws/, "http")}/metrics`)).text();
      assert.match(metrics, /^procwire_audit_sink_dropped_total 0$/m);
      assert.match(metrics, /^procwire_audit_writable 1$/m);
    }
    const lines = readFileSync(path, "utf8").trimEnd().split("\n");
    await until("every line arrives", () => receiver.lines.length === lines.length);
    assert.deepEqual(receiver.lines, lines);
    writeFileSync(received, `${lines.join("\n")}\n`);
    const valid = await audit("verify", "--sink", received, path);
    assert.equal(valid.code, 0, valid.stderr);
    writeFileSync(path, `${lines.slice(0, -1).join("\n")}\n`);
    const cut = await audit("verify", "--sink", received, path);
    assert.equal(cut.code, 1);
    assert.match(cut.stderr, /the log ends at seq 1, but .* has seq 2: lines are missing/);
  });

  test("rejects a sink without a file or with an unknown address", async () => {
    for (const [args, message] of [
      [["--audit-sink", "syslog"], /--audit-sink requires --audit FILE/],
      [
        ["--audit", "/dev/null", "--audit-sink", "tcp://x"],
        /unsupported --audit-sink `tcp:\/\/x`; expected unix:\/\/\/PATH/,
      ],
    ] as const) {
      const { code, stderr } = await runCli(["serve", "--listen", "ws://127.0.0.1:0", ...args], { cwd: "/tmp" });
      assert.equal(code, 2);
      assert.match(stderr, message);
    }
  });

  test("does not start when the file cannot be written", async () => {
    const args = ["serve", "--listen", "ws://127.0.0.1:0", "--audit", "/nonexistent/audit.jsonl"];
    const { code, stderr } = await startCli(args, { cwd: "/tmp" }).ended;
    assert.equal(code, 2);
    assert.match(stderr, /^procwire serve: --audit \/nonexistent\/audit\.jsonl: ENOENT/);
  });
});
