import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ConnectionState } from "../../../src/client/exec-server-client.ts";
import { Environment, type EnvironmentOptions } from "../../../src/client/node/environment.ts";
import { CommandError } from "../../../src/client/node/environment-commands.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import type { ExecEvent, ExecProcess } from "../../../src/exec/exec-process.ts";
import { DisconnectedError } from "../../../src/protocol/errors.ts";
import { FaultProxy } from "../../support/faults/fault-proxy.ts";
import { ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { until } from "../../support/system/until.ts";

const TIMEOUT = { timeout: 600_000 };
const QUICK = { firstDelayMs: 5, maxDelayMs: 50 };
const TAKEN_OVER = /was taken over by another connection/;
const LOST = /^exec-server transport disconnected/;

interface Opened extends AsyncDisposable {
  environment: Environment;
  states: ConnectionState[];
  until(type: ConnectionState["type"]): Promise<void>;
}

async function open(url: string, options: EnvironmentOptions = {}): Promise<Opened> {
  const states: ConnectionState[] = [];
  const onConnectionState = (state: ConnectionState) => states.push(state);
  const environment = await Environment.create(url, { reconnect: QUICK, onConnectionState, ...options });
  return {
    environment,
    states,
    until: (type) => until(`the state ${type}`, () => states.some((state) => state.type === type)),
    [Symbol.asyncDispose]: () => environment.close(),
  };
}

/** Kills the server itself without a shutdown, and waits until its parent has ended the rest. */
async function crash(server: ServeChild): Promise<void> {
  process.kill(server.serverPid(), "SIGKILL");
  await server.exited;
}

async function assertLost(lost: ExecProcess): Promise<void> {
  const events: ExecEvent[] = [];
  for await (const event of lost.events()) events.push(event);
  const last = events.at(-1);
  assert.ok(last?.type === "failed" && last.error instanceof DisconnectedError, JSON.stringify(last));
  assert.match(last.message, LOST);
  await assert.rejects(lost.write(new Uint8Array(1)), { name: "DisconnectedError", message: LOST });
}

/** Every kind of call works in the new session. */
async function assertWorks({ environment, states }: Opened): Promise<void> {
  const [ran, text] = await Promise.all([
    environment.run(["echo", "works"]),
    environment.files.readText("/proc/sys/kernel/ostype"),
  ]);
  assert.deepEqual([ran.stdout, text], ["works\n", "Linux\n"]);
  await using child = await environment.spawn("cat");
  await child.write("on\n");
  await child.waitFor("on");
  assert.equal(states.at(-1)?.type, "connected");
}

describe("an environment whose server restarts", TIMEOUT, () => {
  test("fails its processes after a SIGKILL of the server, and works in a new session unless reconnect is false", async () => {
    const first = await serve();
    await using opened = await open(first.url);
    await using final = await open(first.url, { reconnect: false });
    const { environment, states } = opened;
    const child = await environment.spawn(["sleep", "1000"]);
    const running = assert.rejects(environment.run(["sleep", "1000"]), { name: "DisconnectedError", message: LOST });
    await crash(first);
    await using _second = await new ServeChild(["--listen", first.url]).listening();
    await Promise.all([running, assertLost(child)]);
    await opened.until("sessionLost");
    const lost = states.find((state) => state.type === "sessionLost");
    assert.match(lost?.reason ?? "", /failed to resume exec-server session: unknown session id/);
    await assertWorks(opened);
    assert.deepEqual(
      states.map(({ type }) => type),
      ["connected", "reconnecting", "sessionLost", "connected"],
    );
    await assert.rejects(final.environment.run("true"), { name: "DisconnectedError", message: LOST });
    assert.deepEqual(
      final.states.map(({ type }) => type),
      ["connected", "disconnected"],
    );
  });

  test("works in a new session after many restarts, whenever the server is killed", async () => {
    using scratch = scratchDirectory();
    let server = await new ServeChild(["--listen", `unix://${scratch.path}/socket`]).listening();
    await using opened = await open(server.url);
    const { environment } = opened;
    const marks = join(scratch.path, "marks");
    writeFileSync(marks, "");
    let count = 0;
    let succeeded = 0;
    for (let round = 0; round < repetitions(30); round++) {
      let isDown = true;
      // Calls in flight, between two calls, while the session is opened and while it is resumed.
      const calling = (async () => {
        while (isDown) {
          const mark = ++count;
          const adding = environment.run(["sh", "-c", `echo ${mark} >> ${marks}`]);
          const [outcome] = await Promise.allSettled([adding, environment.files.exists(marks)]);
          if (outcome.status === "fulfilled") succeeded++;
          else assert.ok(outcome.reason instanceof DisconnectedError, String(outcome.reason));
        }
      })();
      await until("a few calls", () => count > round * 3);
      await crash(server);
      server = await new ServeChild(["--listen", server.url]).listening();
      isDown = false;
      await calling;
      assert.equal((await environment.run(["echo", `${round}`])).stdout, `${round}\n`);
    }
    const lines = (await environment.files.readText(marks)).trimEnd().split("\n");
    assert.equal(new Set(lines).size, lines.length, "no command ran twice");
    assert.ok(lines.length >= succeeded, `${lines.length} of ${succeeded}`);
    await server.stop();
  });

  test("works after a hot restart, where a process can be attached again", { skip: NO_SUPERVISOR }, async () => {
    await using server = await SupervisedServer.start();
    await using opened = await open(server.url);
    await using starter = await server.connect();
    const persistent = await starter.start(persistentParams("p", "echo ready; cat"));
    await using client = await server.connect();
    const child = await opened.environment.spawn(["sleep", "1000"]);
    const attached = await client.attach(persistent.handle ?? "");
    process.kill(server.supervisorPid, "SIGHUP");
    await Promise.all([assertLost(attached), opened.until("sessionLost")]);
    // A graceful restart ends other processes first, and reports their exit.
    assert.equal((await child.wait()).signal, "SIGTERM");
    await assertWorks(opened);
    const again = await opened.environment.attach(persistent.handle ?? "", { role: "driver" });
    const first = await again.events().next();
    assert.ok(first.value?.type === "output");
    assert.equal(new TextDecoder().decode(first.value.chunk), "ready\n");
    // The session of a persistent process survives.
    assert.equal(persistent.log.failure, null);
    await again.terminate();
    await again.wait();
  });

  test("starts commands during repeated hot restarts, each at most once", { skip: NO_SUPERVISOR }, async () => {
    using scratch = scratchDirectory();
    await using server = await SupervisedServer.start();
    await using opened = await open(server.url);
    const marks = join(scratch.path, "marks");
    writeFileSync(marks, "");
    let count = 0;
    let isRestarting = true;
    const failures: unknown[] = [];
    const calling = (async () => {
      while (isRestarting) {
        const adding = opened.environment.run(["sh", "-c", `echo ${++count} >> ${marks}`]);
        await adding.catch((error) => failures.push(error));
      }
    })();
    for (let round = 0; round < repetitions(30); round++) {
      const before = count;
      const pid = await server.serverPid([]);
      process.kill(server.supervisorPid, "SIGHUP");
      await until("the next server", async () => (await server.serverPid([])) !== pid);
      await until("the next call", () => count > before + 1);
    }
    isRestarting = false;
    await calling;
    // The server terminates running commands. The client loses a command whose exit was not reported.
    for (const error of failures)
      assert.ok(error instanceof DisconnectedError || (error instanceof CommandError && error.signal), String(error));
    const lines = (await opened.environment.files.readText(marks)).trimEnd().split("\n");
    assert.equal(new Set(lines).size, lines.length, "no command ran twice");
  });
});

describe("an environment that lost its session", TIMEOUT, () => {
  test("works in a new session after its session expired, but not after a takeover", async () => {
    await using server = await serve("--detached-session-ttl", "0");
    await using proxy = await FaultProxy.before(server.url);
    await using opened = await open(proxy.url);
    const child = await opened.environment.spawn(["sleep", "1000"]);
    for (let round = 1; round <= 2; round++) {
      proxy.cut({ reset: true });
      await until(`loss ${round}`, () => opened.states.filter(({ type }) => type === "sessionLost").length === round);
      await assertWorks(opened);
    }
    await assertLost(child);

    // A takeover is final.
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const resumeSessionId = client.sessionId ?? assert.fail();
    await using former = await open(server.url, { resumeSessionId, takeOver: true });
    await using _next = await open(server.url, { resumeSessionId, takeOver: true });
    await former.until("disconnected");
    await assert.rejects(former.environment.run(["true"]), TAKEN_OVER);
    await assert.rejects(former.environment.files.exists("/"), TAKEN_OVER);
    assert.deepEqual(
      former.states.map(({ type }) => type),
      ["connected", "disconnected"],
    );
    await assert.rejects(client.files.exists("/"), TAKEN_OVER);
  });

  test("opens no new session after close, or if the next server rejects its token", async () => {
    using scratch = scratchDirectory();
    const tokenFile = join(scratch.path, "token");
    const auth = ["--ws-auth", "capability-token", "--ws-token-file", tokenFile];
    writeFileSync(tokenFile, "first-token-of-this-server");
    const first = await serve(...auth);
    const authToken = "first-token-of-this-server";
    await using closed = await open(first.url, { authToken });
    await using rejected = await open(first.url, { authToken });
    let token = authToken;
    await using renewed = await open(first.url, { authToken: () => token });
    await crash(first);
    writeFileSync(tokenFile, "second-token-of-this-server");
    token = "second-token-of-this-server";
    await closed.environment.close();
    await using _second = await new ServeChild(["--listen", first.url, ...auth]).listening();
    await rejected.until("disconnected");
    await assert.rejects(rejected.environment.run("true"), { name: "DisconnectedError", message: /HTTP 401/ });
    await assert.rejects(closed.environment.run("true"), /the client was closed/);
    await assertWorks(renewed);
    assert.deepEqual(
      [closed, rejected].map(({ states }) => states.at(-1)?.type),
      ["disconnected", "disconnected"],
    );
  });
});
