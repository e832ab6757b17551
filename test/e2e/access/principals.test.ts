/** Visibility and takeover of sessions by principal: over real sockets, with the server as a user starts it. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { chmodSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, describe, test } from "node:test";
import { writeSecret } from "../../support/auth/secret-file.ts";
import { sh, type WireClient } from "../../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

const SECRET = "0123456789abcdef0123456789abcdef";
const OPERATOR_TOKEN = "operator-operator-operator-operator";

function file(name: string, content: string): string {
  return writeSecret(scratch.path, name, content);
}

function bearer(claims: object): { authorization: string } {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${part({ alg: "HS256", typ: "JWT" })}.${part({ exp: Date.now() / 1000 + 600, ...claims })}`;
  const signature = createHmac("sha256", SECRET).update(body).digest("base64url");
  return { authorization: `Bearer ${body}.${signature}` };
}

const signed = (...more: string[]) =>
  serve("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file("secret", SECRET), ...more);

interface Listed {
  processId: string;
  handle: string;
  sessionId?: string;
  principal?: string;
}

async function listed(client: WireClient, params: object = { allSessions: true }): Promise<Listed[]> {
  const { processes } = (await client.call("process/list", params)) as { processes: Listed[] };
  return processes;
}

const idsOf = (processes: Listed[]) => processes.map(({ processId }) => processId);

describe("a listing", () => {
  test("shows the handle of each process, and no session id", async () => {
    await using server = await serve();
    await using owner = await server.connect();
    await owner.handshake();
    await owner.start("first", sh("read x"), { pipeStdin: true });
    await owner.start("second", sh("read x"), { pipeStdin: true });
    await using other = await server.connect();
    await other.handshake();
    await other.start("first", sh("read x"), { pipeStdin: true });

    const all = await listed(other);
    assert.deepEqual(idsOf(all), ["first", "second", "first"]);
    const text = JSON.stringify(all);
    for (const id of [owner.sessionId, other.sessionId]) assert.ok(!text.includes(id), "a session id leaked");
    for (const one of all) {
      assert.equal(one.sessionId, undefined);
      assert.match(one.handle, /^[a-z2-7]{12}$/);
    }
    assert.equal(new Set(all.map(({ handle }) => handle)).size, 3);

    const [own] = await listed(owner, {});
    assert.equal(own?.handle, all[0]?.handle);
    const snapshot = await owner.call("process/snapshot", { processId: "first" });
    assert.equal(snapshot.handle, own?.handle);
    const taken = await other.request("initialize", {});
    assert.ok(taken.error, "a second handshake is refused");
    for (const { handle } of all) {
      await using thief = await server.connect();
      const refused = await thief.refused("initialize", {
        clientName: "thief",
        resumeSessionId: handle,
        takeOver: true,
      });
      assert.deepEqual(refused, { code: -32600, message: `unknown session id ${handle}` });
    }
  });

  test("process/start returns the handle only to a client that requested the extension", async () => {
    await using server = await serve();
    await using plain = await server.connect();
    await plain.handshake();
    assert.deepEqual(await plain.start("p", ["true"]), { processId: "p", sandboxType: "none" });
    await using extended = await server.connect();
    await extended.handshake({ extensions: ["started"] });
    const { handle } = await extended.start("p", sh("read x"), { pipeStdin: true });
    assert.match(String(handle), /^[a-z2-7]{12}$/);
    assert.equal((await listed(extended, {}))[0]?.handle, handle);
  });

  test("`procwire ps` shows handles, and neither it nor the log prints a raw control character", async () => {
    await using server = await serve();
    await using owner = await server.connect();
    await owner.handshake();
    await owner.start("esc\u001b[2J\u009b2J", sh("read x"), { pipeStdin: true });
    const [one] = await listed(owner);
    const shown = await output([PROCWIRE, "ps", "--connect", server.url]);
    assert.match(shown, /^HANDLE +NAME +STATE +AGE +OWNER +PID +LIFETIME +OUTPUT +ID +LABELS +COMMAND\n/);
    assert.ok(one && shown.includes(`\n${one.handle} `), shown);
    assert.ok(!shown.includes(owner.sessionId.slice(0, 8)), shown);
    assert.doesNotMatch(shown.replaceAll("\n", ""), /[\x00-\x1f\x7f-\x9f]/);
    assert.match(shown, /esc\\x1b\[2J\\(x9b|u009b)2J/);
    const json = await output([PROCWIRE, "ps", "--json", "--connect", server.url]);
    assert.ok(!json.includes(owner.sessionId), json);
    const stranger = await server.connect();
    stranger.notify("\u009b2J\u202e");
    await until("the message is logged", () => server.stderr.includes("2J\\u202e"));
    assert.doesNotMatch(server.stderr, /[\u009b\u202e]/);
  });
});

describe("a signed token's subject", () => {
  test("attaches to its own processes by their handle, and to no other principal's", async () => {
    await using server = await signed("--operator-claim", "role=admin");
    await using alice = await server.connect(bearer({ sub: "alice" }));
    await alice.handshake();
    await alice.start("hers", sh("read x; echo got $x"), { pipeStdin: true });
    const handle = (await listed(alice))[0]?.handle ?? "";
    await using bob = await server.connect(bearer({ sub: "bob" }));
    await bob.handshake();
    for (const role of ["viewer", "driver"])
      assert.deepEqual(await bob.refused("process/attach", { handle, role }), {
        code: -32600,
        message: `unknown handle ${handle}`,
      });
    assert.equal((await bob.refused("process/kill", { handle })).message, `unknown handle ${handle}`);
    await using again = await server.connect(bearer({ sub: "alice" }));
    await again.handshake();
    await again.call("process/attach", { handle, role: "driver", processId: "mine" });
    assert.equal(await again.write("mine", "alice\n"), "accepted");
    await using operator = await server.connect(bearer({ sub: "root", role: "admin" }));
    await operator.handshake();
    await operator.call("process/attach", { handle, role: "viewer" });
    for (const [client, processId] of [
      [again, "mine"],
      [operator, handle],
    ] as const)
      await client.outputContains(processId, "got alice");
  });

  test("owns its sessions; a request for another principal's session fails like one for an unknown session", async () => {
    await using server = await signed();
    await using alice = await server.connect(bearer({ sub: "alice" }));
    await alice.handshake();
    await alice.start("hers", sh("read x"), { pipeStdin: true });
    await using bob = await server.connect(bearer({ sub: "bob" }));
    await bob.handshake();
    await bob.start("his", sh("read x"), { pipeStdin: true });
    assert.deepEqual(idsOf(await listed(bob)), ["his"]);

    for (const takeOver of [false, true]) {
      await using thief = await server.connect(bearer({ sub: "bob" }));
      const foreign = await thief.refused("initialize", {
        clientName: "thief",
        resumeSessionId: alice.sessionId,
        takeOver,
      });
      assert.deepEqual(foreign, { code: -32600, message: `unknown session id ${alice.sessionId}` });
    }
    assert.equal(await alice.write("hers", "still hers\n"), "accepted");

    await using again = await server.connect(bearer({ sub: "alice" }));
    await again.handshake({ resumeSessionId: alice.sessionId, takeOver: true });
    assert.deepEqual(idsOf(await listed(again)), ["hers"]);
  });

  test("if missing, is one common principal for all such tokens, distinct from every named principal", async () => {
    await using server = await signed();
    await using one = await server.connect(bearer({}));
    await one.handshake();
    await one.start("shared", sh("read x"), { pipeStdin: true });
    await using two = await server.connect(bearer({}));
    await two.handshake();
    assert.deepEqual(idsOf(await listed(two)), ["shared"]);
    for (const sub of ["", "undefined", "anonymous", "token", "local"]) {
      await using named = await server.connect(bearer({ sub }));
      await named.handshake();
      assert.deepEqual(idsOf(await listed(named)), [], `sub ${sub}`);
    }
  });

  test("sees and takes over all sessions if the token has exactly the configured operator claim", async () => {
    await using server = await signed("--operator-claim", "role=operator");
    await using alice = await server.connect(bearer({ sub: "alice" }));
    await alice.handshake();
    await alice.start("hers", sh("read x"), { pipeStdin: true });
    for (const claims of [{ role: "operators" }, { roles: "operator" }, { role: { operator: 1 } }]) {
      await using none = await server.connect(bearer({ sub: "o", ...claims }));
      await none.handshake();
      assert.deepEqual(await listed(none), []);
    }
    for (const role of ["operator", ["reader", "operator"]]) {
      await using operator = await server.connect(bearer({ sub: "o", role }));
      await operator.handshake();
      const [one] = await listed(operator);
      assert.deepEqual([one?.processId, one?.principal], ["hers", "jwt:alice"]);
    }
    await using operator = await server.connect(bearer({ sub: "o", role: "operator" }));
    await operator.handshake({ resumeSessionId: alice.sessionId, takeOver: true });
    assert.equal(await operator.write("hers", "x\n"), "accepted");
    await alice.ended();
    // The session that an operator took over still belongs to its owner.
    await using back = await server.connect(bearer({ sub: "alice" }));
    await back.handshake({ resumeSessionId: alice.sessionId, takeOver: true });
  });
});

test("the operator's token sees all sessions; other principals do not see each other's", async () => {
  const token = "s".repeat(32);
  await using server = await serve(
    ...["--ws-auth", "capability-token", "--ws-token-file", file("token", token)],
    ...["--operator-token-file", file("operator", `${OPERATOR_TOKEN}\n`)],
  );
  await using user = await server.connect({ authorization: `Bearer ${token}` });
  await user.handshake();
  await user.start("theirs", sh("read x"), { pipeStdin: true });
  await using operator = await server.connect({ authorization: `Bearer ${OPERATOR_TOKEN}` });
  await operator.handshake();
  await operator.start("mine", sh("read x"), { pipeStdin: true });
  assert.deepEqual(
    (await listed(operator)).map(({ processId, principal }) => [processId, principal]),
    [
      ["theirs", "token"],
      ["mine", "operator"],
    ],
  );
  const seen = await listed(user);
  assert.deepEqual([idsOf(seen), seen[0]?.principal], [["theirs"], "token"]);
});

test("the server rejects an operator token without authentication, and an operator token below 32 bytes", async () => {
  const alone = new ServeChild(["--listen", "ws://127.0.0.1:0", "--operator-token-file", file("op", OPERATOR_TOKEN)]);
  assert.equal((await alone.exited).code, 2);
  assert.match(alone.stderr, /--operator-token-file \S+: requires `--ws-auth`/);
  const short = new ServeChild([
    ...["--listen", "ws://127.0.0.1:0", "--ws-auth", "capability-token"],
    ...["--ws-token-file", file("token", "s".repeat(32)), "--operator-token-file", file("short", "hunter2")],
  ]);
  assert.equal((await short.exited).code, 2);
  assert.match(short.stderr, /--operator-token-file \S+: the token has 7 bytes; expected at least 32/);
});

test("on a unix socket the peer's uid is the principal, and the --operator-uid is the operator", async (t) => {
  const skipReason = skipUnless(process.getuid?.() === 0, "connecting as other users requires root");
  if (skipReason) return t.skip(skipReason);
  chmodSync(scratch.path, 0o755);
  const path = join(scratch.path, "uid.sock");
  await using server = await new ServeChild([...["--listen", `unix://${path}`, "--operator-uid", "65533"]]).listening();
  // By default only the owner of the socket may connect. Here all users may connect, so the server distinguishes them.
  chmodSync(path, 0o666);
  await using root = await server.connect();
  await root.handshake();
  await root.start("root's", sh("read x"), { pipeStdin: true });
  assert.deepEqual(await listAs(65534, path), []);
  assert.deepEqual(await listAs(65533, path), ["root's uid:0"]);
  assert.deepEqual(await listAs(0, path), ["root's uid:0"]);
});

test("without the addon all clients of a unix socket are one principal, and --operator-uid is rejected", async () => {
  const env = { PROCWIRE_NATIVE_SPAWNER: "/nonexistent.node" };
  const path = join(scratch.path, "plain.sock");
  await using server = await new ServeChild(["--listen", `unix://${path}`], { env }).listening();
  await using one = await server.connect();
  await one.handshake();
  await one.start("mine", sh("read x"), { pipeStdin: true });
  await using two = await server.connect();
  await two.handshake();
  assert.deepEqual(idsOf(await listed(two)), ["mine"]);

  const refused = new ServeChild(["--listen", `unix://${path}.2`, "--operator-uid", "0"], { env });
  assert.equal((await refused.exited).code, 1);
  assert.match(refused.stderr, /--operator-uid: native addon not available/);
});

/** Lists the processes that a client running as user `uid` sees. */
async function listAs(uid: number, path: string): Promise<string[]> {
  const script = `
    process.setgid(${uid}); process.setuid(${uid});
    const socket = require("node:net").connect(${JSON.stringify(path)});
    socket.write("GET / HTTP/1.1\\r\\nhost: x\\r\\nconnection: upgrade\\r\\nupgrade: websocket\\r\\nsec-websocket-version: 13\\r\\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n");
    const frame = (text) => Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);
    socket.write(frame('{"id":1,"method":"initialize","params":{"clientName":"x"}}'));
    socket.write(frame('{"method":"initialized"}'));
    socket.write(frame('{"id":2,"method":"process/list","params":{"allSessions":true}}'));
    let all = "";
    socket.on("data", (chunk) => {
      all += chunk.toString("latin1");
      const answer = /{"id":2,.*}/.exec(all);
      if (answer) { console.log(answer[0]); socket.destroy(); }
    });`;
  const text = await output([process.execPath, "-e", script]);
  const { result } = JSON.parse(text) as { result: { processes: Listed[] } };
  return result.processes.map(({ processId, principal }) => `${processId} ${principal}`);
}

async function output([program = "", ...args]: string[]): Promise<string> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  await once(child, "close");
  return text;
}

describe("a unix socket's file", () => {
  const full: ChildProcess[] = [];
  after(() => {
    for (const child of full) child.kill("SIGKILL");
  });

  test("is not replaced while its server lives, even if that server accepts no connections", async () => {
    const path = join(scratch.path, "full.sock");
    const busy = spawn(
      process.execPath,
      [
        "-e",
        `require("node:net").createServer().listen({ path: ${JSON.stringify(path)}, backlog: 1 }, () => {
           require("node:fs").writeSync(1, "listening\\n");
           Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
         });`,
      ],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    full.push(busy);
    await once(createInterface({ input: busy.stdout }), "line");
    const waiting: Socket[] = [];
    let isFull = false;
    await until("the queue is full", async () => {
      const socket = connect(path);
      waiting.push(socket);
      socket.on("error", (error) => {
        isFull ||= "code" in error && error.code === "EAGAIN";
      });
      await new Promise((resolve) => setImmediate(resolve));
      return isFull;
    });
    await using second = new ServeChild(["--listen", `unix://${path}`]);
    await until("the second server gives up", () => second.child.exitCode !== null);
    assert.equal((await second.exited).code, 1);
    assert.match(second.stderr, /another server is listening there/);
    for (const socket of waiting) socket.destroy();
    busy.kill("SIGKILL");
    await once(busy, "close");
    // The server is dead now, so the next server replaces the file.
    await using third = await new ServeChild(["--listen", `unix://${path}`]).listening();
    await (await third.connect()).close();
  });
});
