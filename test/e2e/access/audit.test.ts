/** `--audit FILE` of a real server: one line per decision, with the principal and the process. */
import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { sh, startParams } from "../../support/servers/raw-connection.ts";
import { startCli } from "../../support/servers/run-cli.ts";
import { scratchDirectory, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

type Line = Record<string, unknown>;

const linesOf = (path: string): Line[] =>
  readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

const without = (line: Line | undefined, ...keys: string[]) =>
  Object.fromEntries(Object.entries(line ?? {}).filter(([key]) => !keys.includes(key)));

describe("an audited server", () => {
  test("logs each start, write, signal, attach, takeover and end with the principal and the process", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const tokens = ["t".repeat(40), "o".repeat(40)].map((token, at) => {
      const file = join(scratch.path, `token-${at}`);
      writeFileSync(file, token, { mode: 0o600 });
      return { token, file };
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
    await until("its end is written", () => linesOf(path).some(({ event }) => event === "end"));
    const lines = linesOf(path);
    for (const { time } of lines) assert.match(String(time), /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    const acts = lines.map((line) => without(line, "time"));
    const one = { principal: "token", session: 1 };
    const two = { principal: "operator", session: 2 };
    assert.deepEqual(acts, [
      { ...one, event: "session", change: "opened" },
      { ...one, event: "start", processId: "cat", handle, argv: ["cat"], cwd: "file:///tmp", tty: false },
      { ...one, event: "write", processId: "cat", handle, bytes: 5, status: "accepted" },
      { ...one, event: "start-refused", processId: "none", argv: ["/nonexistent"], reason: acts[3]?.reason },
      { ...two, event: "session", change: "opened" },
      { ...two, event: "attach", processId: handle, handle, role: "viewer" },
      { ...two, event: "attach", processId: handle, handle, role: "driver" },
      { ...two, event: "write", processId: handle, handle, bytes: 1, status: "accepted" },
      { ...two, event: "signal", processId: handle, handle, signal: "SIGTERM" },
      { event: "end", processId: "cat", handle, exitCode: 143, signal: "SIGTERM", reason: "signaled" },
    ]);
    assert.match(String(acts[3]?.reason), /No such file/);
    assert.doesNotMatch(readFileSync(path, "utf8"), /aGVsbG8|hello|tttt|oooo/);
  });

  test("logs v0 processes too, and creates a new file after its file was moved", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    await using server = await serve("--audit", path);
    await using client = await server.connect();
    await client.handshake();
    await client.call("command/exec", { argv: sh("exit 3"), cwd: "/", env: {}, tty: false });
    await until("its end is written", () => linesOf(path).some(({ event }) => event === "end"));
    assert.deepEqual(
      linesOf(path).map(({ event, processId, exitCode }) => [event, processId, exitCode]),
      [
        ["session", undefined, undefined],
        ["start", "session-1", undefined],
        ["end", "session-1", 3],
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
  });

  test("does not start when the file cannot be written", async () => {
    const args = ["serve", "--listen", "ws://127.0.0.1:0", "--audit", "/nonexistent/audit.jsonl"];
    const { code, stderr } = await startCli(args, { cwd: "/tmp" }).ended;
    assert.equal(code, 1);
    assert.match(stderr, /^procwire serve: cannot write the audit log \/nonexistent\/audit\.jsonl: ENOENT/);
  });
});
