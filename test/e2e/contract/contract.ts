/**
 * The contract of a server, from the wire: JSON text in, JSON text out. One suite, run over every transport by the test
 * files in this directory.
 */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { sh, startParams, type Wire, WireClient, type WireMessage } from "../../support/servers/raw-connection.ts";
import { isAlive, scratchDirectory } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

export interface TransportUnderTest {
  name: string;
  open(): Promise<void>;
  connect(): Promise<Wire>;
  close(): Promise<void>;
  /** Start of the error message for a malformed message. */
  malformed: RegExp;
  /** Whether sessions can be resumed; false if the server exits with its connection. */
  resumable: boolean;
}

/** The format of a process handle. */
const HANDLE = /^[a-z2-7]{12}$/;

const base64 = (text: string) => Buffer.from(text).toString("base64");
const fromBase64 = (text: unknown) => Buffer.from(String(text), "base64").toString();

export function contract(transport: TransportUnderTest): void {
  const connect = async () => new WireClient(await transport.connect());
  const ready = async (params: Record<string, unknown> = {}) => {
    const client = await connect();
    await client.handshake(params);
    return client;
  };

  describe(`over ${transport.name}`, () => {
    before(() => transport.open());
    after(() => transport.close());

    describe("the handshake", () => {
      test("returns the v0 fields and the fields of the extensions", async () => {
        await using client = await connect();
        const result = await client.call("initialize", { clientName: "x", extensions: ["outputAck", "new"] });
        assert.deepEqual(Object.keys(result), [
          "protocolVersion",
          "sessionId",
          "environmentInfo",
          "extensions",
          "attachmentId",
          "generation",
        ]);
        assert.match(String(result.generation), /^[0-9a-f]{8}-1$/);
        assert.equal(result.protocolVersion, "exec-server.v0");
        assert.match(String(result.sessionId), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
        assert.deepEqual(result.extensions, ["outputAck"]);
        const info = result.environmentInfo as { shell: { name: string; path: string }; platformOs: string };
        assert.ok(info.shell.path.startsWith("/"));
        assert.equal(info.platformOs, "linux");
        client.notify("initialized", {});
        const again = await client.call("environment/info");
        assert.deepEqual(again.shell, info.shell);
        assert.equal(again.generation, result.generation);
      });

      test("returns only the v0 fields to a client that requests no extension", async () => {
        await using client = await connect();
        assert.deepEqual(Object.keys(await client.call("initialize", { clientName: "x" })), [
          "protocolVersion",
          "sessionId",
          "environmentInfo",
          "extensions",
        ]);
      });

      test("may be pipelined with the next requests", async () => {
        await using client = await connect();
        const answers = [client.request("initialize", { clientName: "x" })];
        client.notify("initialized");
        answers.push(client.request("environment/status"), client.request("process/list"));
        const [, status, list] = await Promise.all(answers);
        assert.deepEqual(status?.result, { status: "ready" });
        assert.deepEqual(list?.result, { processes: [] });
      });

      test("rejects an unknown session", async () => {
        await using client = await connect();
        for (const id of ["", "nope"]) {
          assert.deepEqual(await client.refused("initialize", { clientName: "x", resumeSessionId: id }), {
            code: -32600,
            message: `unknown session id ${id}`,
          });
        }
        await client.handshake({ resumeSessionId: null });
      });
    });

    describe("an unreadable message", () => {
      test("gets an error response with id -1, and the connection stays open", async () => {
        await using client = await ready();
        for (const text of ["not-json", "[]", '{"id":null,"method":"x"}', '{"id":1,"id":1,"method":"x"}', "{}"]) {
          const before = client.messages.length;
          client.raw(text);
          await client.until("an answer", () => client.messages.length > before);
          const { id, error } = client.messages[before] ?? {};
          assert.equal(id, -1);
          assert.equal(error?.code, -32600);
          assert.match(error?.message ?? "", transport.malformed);
        }
        assert.deepEqual(await client.call("environment/status"), { status: "ready" });
      });

      test("does not include a message with a string or 64-bit id, or with extra members", async () => {
        await using client = await ready();
        const lines: [text: string, id: string | number | bigint][] = [
          ['{"jsonrpc":"2.0","id":"abc","method":"environment/status"}', "abc"],
          ['{"id":"","method":"environment/status","more":1}', ""],
          ['{"id":-1,"method":"environment/status"}', -1],
          ['{"id":9223372036854775807,"method":"environment/status"}', 9223372036854775807n],
          ['{"id":-9223372036854775808,"method":"environment/status"}', -9223372036854775808n],
          ['{"id":77,"method":"environment/status","result":{}}', 77],
          ['{"id":78,"method":"environment/status","trace":{"traceparent":"x"}}', 78],
        ];
        for (const [text, id] of lines) {
          client.raw(text);
          assert.deepEqual((await client.answer(id)).result, { status: "ready" });
        }
      });
    });

    describe("a protocol violation", () => {
      const fatal: [what: string, text: string, beforeHandshake?: boolean][] = [
        ["`initialized` before `initialize`", '{"method":"initialized"}', true],
        ["an unknown notification", '{"method":"process/output","params":{}}'],
        ["an answer without a request", '{"id":99,"result":{}}'],
        ["an error without a request", '{"id":99,"error":{"code":1,"message":"x"}}'],
      ];
      for (const [what, text, beforeHandshake] of fatal) {
        test(`${what} closes the connection without a response`, async () => {
          const client = beforeHandshake ? await connect() : await ready();
          const before = client.messages.length;
          client.raw(text);
          client.raw('{"id":5,"method":"environment/status"}');
          await client.ended();
          assert.equal(client.messages.length, before);
        });
      }

      test("only detaches the session", {
        skip: !transport.resumable && "here the connection is the server",
      }, async () => {
        const first = await ready();
        await first.start("p", sh("read x; echo got $x"), { pipeStdin: true });
        first.raw('{"method":"nonsense"}');
        await first.ended();
        await using second = await ready({ resumeSessionId: first.sessionId });
        await second.write("p", "it\n");
        assert.equal((await second.finished("p")).output, "got it\n");
      });
    });

    describe("the v0 protocol", () => {
      const exec = (script: string, more: Record<string, unknown> = {}) => ({
        argv: sh(script),
        cwd: "/tmp",
        env: { PATH: "/usr/bin:/bin" },
        tty: false,
        arg0: null,
        ...more,
      });

      test("reports output and exit by its own notifications, and nothing else", async () => {
        await using client = await ready();
        await client.call("command/exec", exec("echo out; echo err >&2; exit 4"));
        await client.notification("command/exec/exited", "session-1");
        const notifications = client.messages.filter(({ method }) => method !== undefined);
        assert.deepEqual(
          notifications
            .map(({ method, params }) => [method, params?.sessionId, params?.stream ?? params?.exitCode])
            .sort(),
          [
            ["command/exec/exited", "session-1", 4],
            ["command/exec/outputDelta", "session-1", "stderr"],
            ["command/exec/outputDelta", "session-1", "stdout"],
          ],
        );
        assert.deepEqual(await client.call("process/list"), { processes: [] });
      });

      test("streams terminal output as stdout and accepts writes", async () => {
        await using client = await ready();
        const script = "printf 'ready\\n'; while IFS= read -r line; do printf 'echo:%s\\n' \"$line\"; done";
        await client.call("command/exec", exec(script, { tty: true }));
        await client.outputContains("session-1", "ready");
        assert.deepEqual(
          await client.call("command/exec/write", { sessionId: "session-1", chunk: base64("hello\n") }),
          {
            accepted: true,
          },
        );
        await client.outputContains("session-1", "echo:hello");
        assert.ok(client.notificationsOf("session-1").every(({ params }) => params.stream === "stdout"));
        assert.deepEqual(await client.call("command/exec/terminate", { sessionId: "session-1" }), {
          running: true,
        });
        assert.equal((await client.notification("command/exec/exited", "session-1")).params?.exitCode, 137);
        assert.equal(
          (await client.refused("command/exec/write", { sessionId: "session-1", chunk: "" })).message,
          "unknown session id session-1",
        );
      });

      test("gives processes the exact environment, arg0 as argv[0] and an empty stdin, and counts session ids per connection", async () => {
        await using client = await ready();
        await client.call("command/exec", { ...exec(""), argv: ["/usr/bin/env"], env: { ONLY: "this" } });
        await client.call("command/exec", exec('cat; echo "$0"', { arg0: "renamed" }));
        await client.notification("command/exec/exited", "session-1");
        await client.notification("command/exec/exited", "session-2");
        assert.equal(client.output("session-1"), "ONLY=this\n");
        assert.equal(client.output("session-2"), "renamed\n");
        await using other = await ready();
        assert.deepEqual(await other.call("command/exec", exec("true")), { sessionId: "session-1" });
      });

      test("rejects requests with its own error codes", async () => {
        await using client = await ready();
        assert.deepEqual(await client.refused("command/exec", { ...exec("true"), argv: [] }), {
          code: -32602,
          message: "argv must not be empty",
        });
        assert.equal((await client.refused("command/exec", { argv: ["true"] })).code, -32602);
        assert.equal((await client.refused("command/exec", exec("true", { cwd: "relative" }))).code, -32602);
        assert.equal((await client.refused("command/exec", { ...exec("true"), argv: ["/no/such/bin"] })).code, -32603);
        assert.equal((await client.refused("command/exec", exec("true", { cwd: "/no/such/dir" }))).code, -32603);
      });

      test("terminates processes when their connection closes", async () => {
        const client = await ready();
        await client.call("command/exec", exec("echo $$; sleep 1000 & echo $!; wait"));
        await client.until("two pids", () => client.output("session-1").split("\n").length === 3);
        const pids = client.output("session-1").trim().split("\n").map(Number);
        await client.close();
        await until("both are gone", () => pids.every((pid) => !isAlive(pid)));
      });
    });

    describe("a process", () => {
      test("reports output, exited and closed in one sequence without gaps", async () => {
        await using client = await ready();
        assert.deepEqual(await client.start("p", sh("echo out; sleep 0.05; echo err >&2; sleep 0.05; exit 7")), {
          processId: "p",
          sandboxType: "none",
        });
        await client.finished("p");
        assert.deepEqual(
          client.notificationsOf("p").map(({ method, params: { processId, ...rest } }) => ({ method, ...rest })),
          [
            { method: "process/output", seq: 1, stream: "stdout", chunk: base64("out\n") },
            { method: "process/output", seq: 2, stream: "stderr", chunk: base64("err\n") },
            {
              method: "process/exited",
              seq: 3,
              exitCode: 7,
              sandboxDenied: false,
              signal: null,
              reason: "exited",
            },
            { method: "process/closed", seq: 4 },
          ],
        );
      });

      test("sends no event before the response to its start, in 200 runs", async () => {
        await using client = await ready();
        for (let batch = 0; batch < 10; batch++) {
          const ids = Array.from({ length: 20 }, (_, n) => `p${batch}-${n}`);
          const answers = ids.map((id) => client.request("process/start", startParams(id, ["/bin/echo", id])));
          await Promise.all(answers);
          for (const id of ids) assert.equal((await client.finished(id)).output, `${id}\n`);
          for (const id of ids) {
            const answered = client.messages.findIndex(({ result }) => result?.processId === id);
            const firstEvent = client.messages.findIndex(({ params }) => params?.processId === id);
            assert.ok(answered >= 0 && answered < firstEvent, `${id} sent an event before its response`);
          }
        }
      });

      test("reports exited after all its output, however much that is", async () => {
        await using client = await ready();
        await client.start("p", sh("head -c 3000000 /dev/zero; exit 3"));
        await client.finished("p");
        const events = client.notificationsOf("p");
        assert.deepEqual(
          events.map(({ params }) => params.seq),
          events.map((_, index) => index + 1),
        );
        assert.deepEqual(
          events.slice(-2).map(({ method }) => method),
          ["process/exited", "process/closed"],
        );
        assert.equal(client.outputBytes("p").length, 3_000_000);
      });

      test("delivers bytes untouched", async () => {
        await using client = await ready();
        const octal = Array.from({ length: 256 }, (_, byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
        await client.start("p", ["/usr/bin/printf", octal]);
        await client.finished("p");
        assert.deepEqual(
          [...client.outputBytes("p")],
          Array.from({ length: 256 }, (_, byte) => byte),
        );
      });

      test("in a terminal has the requested size, a controlling terminal and one stream", async () => {
        await using client = await ready();
        await client.start("default", sh("stty size; tty; test -t 0 -a -t 1 -a -t 2 && echo all"), {
          tty: true,
        });
        await client.start("sized", sh("stty size"), { tty: true, size: { rows: 50, cols: 132 } });
        assert.match((await client.finished("default")).output, /^24 80\r\n\/dev\/pts\/\d+\r\nall\r\n$/);
        assert.equal((await client.finished("sized")).output, "50 132\r\n");
        const outputs = client.notificationsOf("default").filter(({ method }) => method === "process/output");
        assert.ok(outputs.every(({ params }) => params.stream === "pty"));
      });

      test("that a signal ends reports the signal, also in a terminal", async () => {
        await using client = await ready();
        for (const tty of [false, true]) {
          const id = `p${tty}`;
          await client.start(id, sh("kill -TERM $$; sleep 10"), { tty });
          const { exited } = await client.finished(id);
          assert.deepEqual([exited.exitCode, exited.signal, exited.reason], [143, "SIGTERM", "signaled"]);
        }
      });

      test("runs argv[0] whatever arg0 says, also in a terminal", async () => {
        await using client = await ready();
        for (const tty of [false, true]) {
          await client.start(`p${tty}`, sh('echo "$0"'), { tty, arg0: "other" });
          assert.equal((await client.finished(`p${tty}`)).output.trim(), "other");
        }
      });

      test("does not start in a missing cwd, also in a terminal", async () => {
        await using client = await ready();
        for (const tty of [false, true]) {
          const error = await client.refused(
            "process/start",
            startParams("p", ["true"], { tty, cwd: "file:///no/such" }),
          );
          assert.equal(error.code, -32603);
        }
      });

      test("reports output of a background child between exited and closed", async () => {
        await using client = await ready();
        await client.start("p", sh("(sleep 0.3; echo late) & echo first"));
        await client.finished("p");
        assert.deepEqual(
          client.notificationsOf("p").map(({ method, params }) => [method, params.chunk && fromBase64(params.chunk)]),
          [
            ["process/output", "first\n"],
            ["process/exited", undefined],
            ["process/output", "late\n"],
            ["process/closed", undefined],
          ],
        );
      });

      test("is rejected with an empty argv, and with an id that is in use", async () => {
        await using client = await ready();
        await client.start("p", sh("sleep 10"));
        assert.deepEqual(await client.refused("process/start", startParams("p", [])), {
          code: -32602,
          message: "argv must not be empty",
        });
        assert.deepEqual(await client.refused("process/start", startParams("p", ["/no/such"])), {
          code: -32600,
          message: "process p already exists",
        });
        await client.refused("process/start", startParams("q", ["/no/such"]));
        await client.start("q", ["true"]);
      });
    });

    describe("input", () => {
      test("is written once per write id, in order, and closed at its end", async () => {
        await using client = await ready();
        await client.start("p", ["cat"], { pipeStdin: true });
        assert.equal(await client.write("p", "one\n", "a"), "accepted");
        assert.equal(await client.write("p", "one\n", "a"), "accepted");
        assert.equal(await client.write("p", "two\n", "b"), "accepted");
        assert.equal(await client.write("p", "no id, never deduplicated\n"), "accepted");
        assert.deepEqual(await client.call("process/closeStdin", { processId: "p" }), { status: "accepted" });
        assert.deepEqual(await client.call("process/closeStdin", { processId: "p" }), {
          status: "stdinClosed",
        });
        assert.equal(await client.write("p", "late", "c"), "stdinClosed");
        const { output, exitCode } = await client.finished("p");
        assert.equal(output, "one\ntwo\nno id, never deduplicated\n");
        assert.equal(exitCode, 0);
      });

      test("keeps the order of pipelined start, write and closeStdin", async () => {
        await using client = await ready();
        for (let run = 0; run < 30; run++) {
          const id = `p${run}`;
          const answers = [client.request("process/start", startParams(id, ["cat"], { pipeStdin: true }))];
          for (let n = 0; n < 10; n++) {
            answers.push(client.request("process/write", { processId: id, chunk: base64(`${n}\n`), writeId: `${n}` }));
          }
          answers.push(client.request("process/closeStdin", { processId: id }));
          for (const { error } of await Promise.all(answers)) assert.equal(error, undefined);
          assert.equal((await client.finished(id)).output, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        }
      });

      test("returns a status for each kind of process that cannot receive it", async () => {
        await using client = await ready();
        await client.start("none", sh("sleep 10"));
        assert.equal(await client.write("none", "x", "1"), "stdinClosed");
        assert.equal(await client.write("unknown", "x", "1"), "unknownProcess");
        assert.deepEqual(await client.call("process/closeStdin", { processId: "none" }), {
          status: "stdinClosed",
        });
        assert.deepEqual(await client.call("process/closeStdin", { processId: "unknown" }), {
          status: "unknownProcess",
        });
        assert.equal(
          (await client.refused("process/write", { processId: "none", chunk: "", writeId: "" })).code,
          -32602,
        );
      });

      test("of one megabyte reaches a slow reader completely", async () => {
        await using client = await ready();
        await client.start("p", sh("sleep 0.2; wc -c"), { pipeStdin: true });
        const chunk = base64("x".repeat(65_536));
        const writes = Array.from({ length: 16 }, (_, n) =>
          client.request("process/write", { processId: "p", chunk, writeId: `${n}` }),
        );
        const closed = client.request("process/closeStdin", { processId: "p" });
        assert.equal((await client.finished("p")).output.trim(), "1048576");
        for (const { result } of await Promise.all([...writes, closed])) assert.equal(result?.status, "accepted");
      });
    });

    describe("requests that wait", () => {
      test("do not block later requests: a long poll, and a write to a process that does not read", async () => {
        await using client = await ready();
        await client.start("quiet", sh("sleep 100"));
        await client.start("deaf", sh("sleep 100"), { pipeStdin: true });
        let polled = false;
        void client.request("process/read", { processId: "quiet", waitMs: 60_000 }).then(() => {
          polled = true;
        });
        let written = 0;
        const chunk = base64("x".repeat(262_144));
        for (let n = 0; n < 20; n++) {
          void client.request("process/write", { processId: "deaf", chunk, writeId: `${n}` }).then(() => written++);
        }
        assert.deepEqual(await client.call("environment/status"), { status: "ready" });
        assert.equal(polled, false);
        assert.ok(written < 20, "a process that reads nothing took five megabytes");
        assert.deepEqual(await client.call("process/terminate", { processId: "deaf" }), { running: true });
        await client.finished("deaf");
        await client.call("process/terminate", { processId: "quiet" });
        await client.until("the poll", () => polled);
        await client.until("the writes", () => written === 20);
      });
    });

    describe("process/read", () => {
      test("returns output after the cursor, and consumes nothing", async () => {
        await using client = await ready();
        await client.start("p", sh("printf aaa; sleep 0.1; printf bbbbb; sleep 0.1; printf cc"));
        await client.finished("p");
        const read = async (params: Record<string, unknown>) => {
          const result = await client.call("process/read", { processId: "p", ...params });
          const chunks = result.chunks as { seq: number }[];
          return [chunks.map(({ seq }) => seq), result.nextSeq];
        };
        assert.deepEqual(await read({}), [[1, 2, 3], 6]);
        assert.deepEqual(await read({ afterSeq: 1 }), [[2, 3], 6]);
        assert.deepEqual(await read({ maxBytes: 0 }), [[1], 2]);
        assert.deepEqual(await read({ maxBytes: 7 }), [[1], 2]);
        assert.deepEqual(await read({ maxBytes: 8 }), [[1, 2], 3]);
        assert.deepEqual(await read({ maxBytes: 100 }), [[1, 2, 3], 4]);
        assert.deepEqual(await read({ afterSeq: 3, maxBytes: 100 }), [[], 6]);
        assert.deepEqual(await read({ afterSeq: 99, waitMs: 60_000 }), [[], 6]);
        const { chunks, nextSeq, ...rest } = await client.call("process/read", {
          processId: "p",
          afterSeq: 3,
        });
        assert.deepEqual(rest, {
          exited: true,
          exitCode: 0,
          closed: true,
          failure: null,
          sandboxDenied: false,
        });
      });

      test("reports evicted output as a gap", async () => {
        await using client = await ready();
        await client.start("p", sh("head -c 3000000 /dev/zero"));
        await client.finished("p");
        const result = await client.call("process/read", { processId: "p" });
        const gap = result.gap as { fromSeq: number; toSeq: number; bytes: number };
        const chunks = result.chunks as { seq: number; chunk: string }[];
        const retained = chunks.reduce((sum, { chunk }) => sum + Buffer.from(chunk, "base64").length, 0);
        assert.equal(gap.fromSeq, 1);
        assert.equal(gap.toSeq + 1, chunks[0]?.seq);
        assert.equal(gap.bytes + retained, 3_000_000);
        assert.ok(retained <= 1_048_576 && retained > 700_000);
      });

      test("rejects an unknown process", async () => {
        await using client = await ready();
        assert.deepEqual(await client.refused("process/read", { processId: "x" }), {
          code: -32600,
          message: "unknown process id x",
        });
      });
    });

    describe("signals and termination", () => {
      test("any signal name, or `interrupt`, reaches the whole process group", async () => {
        await using client = await ready();
        const script = "trap 'echo usr1' USR1; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.05; done";
        await client.start("p", sh(script));
        await client.outputContains("p", "ready");
        assert.deepEqual(await client.call("process/signal", { processId: "p", signal: "SIGUSR1" }), {});
        await client.outputContains("p", "usr1");
        assert.deepEqual(await client.call("process/signal", { processId: "p", signal: "interrupt" }), {});
        assert.equal((await client.finished("p")).exitCode, 5);
        assert.deepEqual(await client.call("process/signal", { processId: "p", signal: "interrupt" }), {});
        assert.deepEqual(await client.call("process/signal", { processId: "nobody", signal: "interrupt" }), {});
      });

      test("an unknown signal is rejected with invalid params", async () => {
        await using client = await ready();
        await client.start("p", sh("sleep 10"));
        assert.equal((await client.refused("process/signal", { processId: "p", signal: "SIGNOPE" })).code, -32602);
        assert.equal((await client.refused("process/signal", { processId: "p", signal: 9 })).code, -32602);
      });

      test("terminate kills the process tree at once, even if it ignores SIGTERM", async () => {
        await using client = await ready();
        await client.start("p", sh("trap '' TERM; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait"));
        await client.until("two pids", () => client.output("p").split("\n").length >= 3);
        const pids = client.output("p").trim().split("\n").map(Number);
        assert.deepEqual(await client.call("process/terminate", { processId: "p" }), { running: true });
        const { exited } = await client.finished("p");
        assert.deepEqual([exited.exitCode, exited.signal, exited.reason], [137, "SIGKILL", "terminated"]);
        await until("its children are gone", () => pids.every((pid) => !isAlive(pid)));
        assert.deepEqual(await client.call("process/terminate", { processId: "p" }), { running: false });
        assert.deepEqual(await client.call("process/terminate", { processId: "nobody" }), { running: false });
        assert.equal((await client.refused("process/write", { processId: "p", chunk: "", writeId: "" })).code, -32602);
      });

      test("a graceful terminate lets a process exit and kills a process that ignores SIGTERM", async () => {
        await using client = await ready();
        await client.start("good", sh("trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.05; done"));
        await client.start("bad", sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"));
        await client.outputContains("good", "ready");
        await client.outputContains("bad", "ready");
        const graceful = (timeoutMs: number) => ({ type: "graceful", timeoutMs });
        await client.call("process/terminate", { processId: "good", mode: graceful(20_000) });
        const good = await client.finished("good");
        assert.match(good.output, /bye\n/);
        assert.deepEqual([good.exitCode, good.exited.reason], [6, "terminated"]);
        assert.equal((await client.call("process/terminate", { processId: "bad", mode: graceful(100) })).running, true);
        const bad = await client.finished("bad");
        assert.deepEqual([bad.exitCode, bad.exited.signal, bad.exited.reason], [137, "SIGKILL", "terminated"]);
      });

      test("force does not wait for the grace period of an earlier terminate", async () => {
        await using client = await ready();
        await client.start("p", sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"));
        await client.outputContains("p", "ready");
        const mode = { type: "graceful", timeoutMs: 3_600_000 };
        const graceful = client.request("process/terminate", { processId: "p", mode });
        await client.roundTrip();
        await client.call("process/terminate", { processId: "p", mode: { type: "force" } });
        assert.equal((await client.finished("p")).exited.signal, "SIGKILL");
        assert.deepEqual((await graceful).result, { running: true });
      });

      test("a process that exceeds its timeout is terminated with exit reason timeout", async () => {
        await using client = await ready();
        await client.start("p", sh("exec sleep 1000"), { timeoutMs: 300 });
        const { exited } = await client.finished("p");
        assert.deepEqual([exited.signal, exited.reason], ["SIGTERM", "timeout"]);
      });

      test("a write to a terminated process fails, an earlier accepted write does not", async () => {
        await using client = await ready();
        await client.start("p", ["cat"], { pipeStdin: true });
        await client.write("p", "x", "known");
        await client.call("process/terminate", { processId: "p" });
        await client.finished("p");
        assert.deepEqual(await client.refused("process/write", { processId: "p", chunk: "", writeId: "new" }), {
          code: -32603,
          message: "failed to write to process stdin",
        });
        assert.equal(await client.write("p", "x", "known"), "accepted");
      });
    });

    describe("a terminal", () => {
      test("is resized, and its process receives SIGWINCH", async () => {
        await using client = await ready();
        const script = "trap 'stty size' WINCH; stty -echo; echo ready; while :; do sleep 0.05; done";
        await client.start("p", sh(script), { tty: true });
        await client.outputContains("p", "ready");
        assert.deepEqual(await client.call("process/resize", { processId: "p", size: { rows: 33, cols: 99 } }), {});
        await client.outputContains("p", "33 99");
        const { tty } = await client.call("process/snapshot", { processId: "p" });
        assert.deepEqual(tty, { rows: 33, cols: 99, echo: false, canonical: true });
      });

      test("is required for a resize: pipes and unknown processes are rejected", async () => {
        await using client = await ready();
        await client.start("p", sh("sleep 10"));
        for (const processId of ["p", "nobody"]) {
          assert.equal(
            (await client.refused("process/resize", { processId, size: { rows: 1, cols: 1 } })).code,
            -32600,
          );
        }
        const bad = await client.refused("process/resize", {
          processId: "p",
          size: { rows: 70_000, cols: 1 },
        });
        assert.equal(bad.code, -32602);
      });

      test("passes end of file to its process when stdin is closed", async () => {
        await using client = await ready();
        await client.start("p", ["cat"], { tty: true });
        await client.write("p", "line\n");
        await client.outputContains("p", "line\r\nline\r\n");
        assert.deepEqual(await client.call("process/closeStdin", { processId: "p" }), { status: "accepted" });
        assert.equal((await client.finished("p")).exitCode, 0);
      });

      test("takes Ctrl-C and Ctrl-D as bytes", async () => {
        await using client = await ready();
        await client.start("c", sh("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"), {
          tty: true,
        });
        await client.outputContains("c", "ready");
        await client.write("c", "\u0003");
        assert.equal((await client.finished("c")).exitCode, 9);
        await client.start("d", ["cat"], { tty: true });
        await client.write("d", "line\n");
        await client.outputContains("d", "line\r\nline\r\n");
        await client.write("d", "\u0004");
        assert.equal((await client.finished("d")).exitCode, 0);
      });
    });

    describe("process/wait", () => {
      test("returns at the exit, and counts output from before the call", async () => {
        await using client = await ready();
        await client.start("p", sh("echo early; kill -USR1 $$"));
        await client.finished("p");
        assert.deepEqual(await client.call("process/wait", { processId: "p" }), {
          reason: "exited",
          exitCode: 138,
          signal: "SIGUSR1",
          exitReason: "signaled",
          seq: 3,
        });
        const matched = await client.call("process/wait", {
          processId: "p",
          until: { type: "output", pattern: "ea(r)ly" },
        });
        assert.deepEqual([matched.reason, matched.match], ["matched", "early"]);
        const after = await client.call("process/wait", {
          processId: "p",
          until: { type: "output", pattern: "early" },
          afterSeq: 1,
        });
        assert.equal(after.reason, "closed");
      });

      test("returns at output on the requested stream, at silence, at a byte count, or at the timeout", async () => {
        await using client = await ready();
        await client.start("p", sh("echo ready >&2; sleep 0.1; echo ready; sleep 1000"));
        const wait = async (until: unknown, timeoutMs?: number) =>
          (await client.call("process/wait", { processId: "p", until, timeoutMs })).reason;
        assert.equal(await wait({ type: "output", pattern: "^ready\n", stream: "stdout" }), "matched");
        assert.equal(await wait({ type: "bytes", count: 12 }), "reached");
        assert.equal(await wait({ type: "idle", quietMs: 50 }), "idle");
        assert.equal(await wait({ type: "exit" }, 50), "timeout");
        assert.equal(await wait({ type: "bytes", count: 13 }, 50), "timeout");
      });

      test("returns when a process listens on the port", async () => {
        await using client = await ready();
        await client.start("p", sh("sleep 1000"));
        const probe = createServer();
        const port = await new Promise<number>((resolve) =>
          probe.listen(0, "127.0.0.1", () => resolve((probe.address() as { port: number }).port)),
        );
        await new Promise((resolve) => probe.close(resolve));
        const waiting = client.call("process/wait", { processId: "p", until: { type: "port", port } });
        await client.roundTrip();
        const server = createServer();
        await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
        assert.equal((await waiting).reason, "listening");
        await new Promise((resolve) => server.close(resolve));
      });

      test("rejects a pattern that does not compile, and does not stall on catastrophic backtracking", async () => {
        await using client = await ready();
        await client.start("p", sh("head -c 200000 /dev/zero | tr '\\0' a; sleep 1000"));
        const bad = await client.refused("process/wait", {
          processId: "p",
          until: { type: "output", pattern: "(" },
        });
        assert.equal(bad.code, -32602);
        const waiting = client.request("process/wait", {
          processId: "p",
          until: { type: "output", pattern: "(a+)+(a+)+(a+)+$b" },
        });
        assert.deepEqual(await client.call("environment/status"), { status: "ready" });
        assert.equal((await client.refused("process/wait", { processId: "nobody" })).code, -32600);
        await client.call("process/terminate", { processId: "p" });
        assert.equal((await waiting).result?.reason, "closed");
      });
    });

    describe("inspecting processes", () => {
      test("snapshot returns head and tail of each stream and the process state", async () => {
        await using client = await ready();
        await client.start("p", sh("echo out; echo err >&2; sleep 1000"));
        await client.until("both lines", () => client.output("p").length === 8);
        const { stdout, stderr, terminal, handle, ...rest } = await client.call("process/snapshot", {
          processId: "p",
        });
        assert.match(String(handle), HANDLE);
        assert.deepEqual([fromBase64(stdout), fromBase64(stderr), terminal], ["out\n", "err\n", ""]);
        assert.deepEqual(rest, {
          truncated: false,
          omittedBytes: 0,
          totalBytes: 8,
          exitCode: null,
          signal: null,
          running: true,
        });
        await client.start("big", sh("printf begin; head -c 3000000 /dev/zero; printf end"));
        await client.finished("big");
        const big = await client.call("process/snapshot", { processId: "big" });
        const text = Buffer.from(String(big.stdout), "base64");
        assert.equal(text.length, 1024 * 1024);
        assert.ok(text.toString().startsWith("begin") && text.toString().endsWith("end"));
        assert.deepEqual([big.truncated, big.omittedBytes, big.totalBytes], [true, 3_000_008 - 1024 * 1024, 3_000_008]);
        assert.equal((await client.refused("process/snapshot", { processId: "nobody" })).code, -32600);
      });

      test("list returns the processes of this session", async () => {
        await using client = await ready();
        await client.start("one", sh("echo hello; exit 3"), { cwd: "file:///" });
        await client.start("two", ["sleep", "1000"], { tty: true });
        await client.finished("one");
        const { processes } = (await client.call("process/list")) as { processes: Record<string, unknown>[] };
        const [one, two] = processes.map(({ pid, startedAtMs, handle, ...rest }) => {
          assert.match(String(handle), HANDLE);
          assert.ok(Number(pid) > 1 && Number(startedAtMs) > 1e12);
          return rest;
        });
        assert.deepEqual(one, {
          processId: "one",
          argv: sh("echo hello; exit 3"),
          cwd: "/",
          tty: false,
          running: false,
          exitCode: 3,
          signal: null,
          outputBytes: 6,
        });
        assert.deepEqual([two?.processId, two?.tty, two?.running], ["two", true, true]);
        await using other = await ready();
        assert.deepEqual(await other.call("process/list"), { processes: [] });
      });

      test("started reports the pid to a client that requested the extension", async () => {
        await using client = await ready({ extensions: ["started"] });
        await client.start("p", sh("echo $$"));
        const { output } = await client.finished("p");
        const [first] = client.notificationsOf("p");
        assert.deepEqual(first, {
          method: "process/started",
          params: { processId: "p", pid: Number(output) },
        });
      });
    });

    describe("start modes", () => {
      test("prepared returns its label, direct ignores a label", async () => {
        await using client = await ready();
        assert.deepEqual(await client.start("a", ["true"], { mode: "prepared", sandboxType: "linuxSeccomp" }), {
          processId: "a",
          sandboxType: "linuxSeccomp",
        });
        assert.equal((await client.start("b", ["true"], { sandboxType: "linuxSeccomp" })).sandboxType, "none");
        assert.equal(
          (await client.refused("process/start", startParams("c", ["true"], { mode: "other" }))).code,
          -32602,
        );
      });

      test("a sandbox request that cannot be enforced is rejected, not ignored", async () => {
        await using client = await ready();
        const sandbox = { permissions: { type: "martian" }, windowsSandboxLevel: "disabled" };
        assert.equal((await client.refused("process/start", startParams("p", ["true"], { sandbox }))).code, -32602);
        const proxy = await client.refused("process/start", startParams("p", ["true"], { networkProxy: {} }));
        assert.equal(proxy.code, -32602);
        assert.equal((await client.refused("fs/readFile", { path: "file:///etc/hostname", sandbox })).code, -32602);
      });
    });

    describe("files and HTTP", () => {
      test("files are written, read, listed and watched in the order of the requests", async () => {
        using scratch = scratchDirectory();
        await using client = await ready();
        const uri = (name: string) => `file://${join(scratch.path, name)}`;
        const answers: Promise<WireMessage>[] = [];
        for (let n = 0; n < 20; n++) {
          answers.push(client.request("fs/writeFile", { path: uri("f"), dataBase64: base64(`version ${n}`) }));
        }
        answers.push(client.request("fs/createDirectory", { path: uri("d/e") }));
        answers.push(
          client.request("fs/copy", {
            sourcePath: uri("f"),
            destinationPath: uri("d/e/g"),
            recursive: false,
          }),
        );
        for (const { error } of await Promise.all(answers)) assert.equal(error, undefined);
        assert.equal(readFileSync(join(scratch.path, "d/e/g"), "utf8"), "version 19");
        const read = await client.call("fs/readFile", { path: uri("f") });
        assert.equal(fromBase64(read.dataBase64), "version 19");
        assert.deepEqual(await client.refused("fs/readFile", { path: uri("none") }), {
          code: -32004,
          message: "No such file or directory (os error 2)",
        });
        assert.deepEqual(await client.call("fs/watchMissing", { watchId: 7, missing: [uri("later")] }), {
          watching: true,
        });
        await client.call("fs/writeFile", { path: uri("later"), dataBase64: "" });
        const changed = await client.waitFor("fs/missingChanged", ({ method }) => method === "fs/missingChanged");
        assert.deepEqual(changed.params, { watchId: 7 });
        await client.call("fs/remove", { path: uri("d") });
        assert.ok(!existsSync(join(scratch.path, "d")));
      });

      test("blocks of one file handle keep their order", async () => {
        using scratch = scratchDirectory();
        await using client = await ready();
        const path = join(scratch.path, "blocks");
        const answers = [client.request("fs/open", { handleId: "h", path: `file://${path}`, mode: "replace" })];
        for (let n = 0; n < 50; n++) {
          answers.push(client.request("fs/writeBlock", { handleId: "h", offset: n * 2, chunk: base64(`${n % 10}.`) }));
          answers.push(client.request("fs/writeBlock", { handleId: "h", offset: 0, chunk: base64(`${n % 10}`) }));
        }
        answers.push(client.request("fs/close", { handleId: "h" }));
        for (const { error } of await Promise.all(answers)) assert.equal(error, undefined);
        assert.equal(readFileSync(path, "utf8"), `9.${"1.2.3.4.5.6.7.8.9.0.".repeat(5).slice(0, 98)}`);
      });

      test("an HTTP body is streamed to its end after the response", async () => {
        const { createServer: createHttp } = await import("node:http");
        const http = createHttp((_, response) => response.end("x".repeat(100_000)));
        const port = await new Promise<number>((resolve) =>
          http.listen(0, "127.0.0.1", () => resolve((http.address() as { port: number }).port)),
        );
        await using client = await ready();
        const params = { method: "GET", url: `http://127.0.0.1:${port}/`, requestId: "r" };
        const whole = await client.call("http/request", params);
        assert.equal(fromBase64(whole.bodyBase64).length, 100_000);
        const answer = await client.call("http/request", { ...params, streamResponse: true });
        assert.deepEqual([answer.status, answer.bodyBase64], [200, ""]);
        await client.waitFor(
          "the last chunk of the body",
          ({ params: delta }) => delta?.requestId === "r" && delta.done === true,
        );
        const pieces = client.messages.filter(({ method }) => method === "http/request/bodyDelta");
        assert.deepEqual(
          pieces.map(({ params: delta }) => delta?.seq),
          pieces.map((_, index) => index + 1),
        );
        const body = pieces.map(({ params: delta }) => fromBase64(delta?.deltaBase64)).join("");
        assert.equal(body, "x".repeat(100_000));
        http.close();
      });
    });
  });
}
