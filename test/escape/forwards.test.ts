import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { forwardPortBack } from "../../src/client/node/port-forward.ts";
import { PROCWIRE } from "../support/servers/serve.ts";
import { type Fixture, intent, READ_ROOT, readOnly, testEscape } from "./inside.ts";

const ALLOWED = { serveArgs: () => ["--allow-forward"] };
const NETWORKED = intent([READ_ROOT], { network: "enabled" });
/** Attempts per variant, because the server looks up a peer that may be exiting. */
const TRIES = 20;

/** Starts a TCP service on the client's host behind a `-R` port of the server, and counts its connections. */
async function serviceBehindPort(fixture: Fixture) {
  let connectionCount = 0;
  const service = createServer((socket) => {
    connectionCount++;
    socket.on("error", () => undefined).end("secret\n");
  }).listen(0, "127.0.0.1");
  await once(service, "listening");
  const client = await NodeExecServerClient.connectWebSocket({ url: fixture.server.url });
  const { port } = service.address() as AddressInfo;
  const target = { host: "localhost", port };
  const back = await forwardPortBack(client, { port: 0, target });
  return {
    port: back.port,
    connectionCount: () => connectionCount,
    async [Symbol.asyncDispose]() {
      await back.close();
      await client.close();
      service.close();
    },
  };
}

async function textFrom(port: number): Promise<string> {
  const socket = connect(port, "127.0.0.1").setEncoding("utf8");
  let text = "";
  for await (const chunk of socket) text += chunk;
  return text;
}

/** A bash script that prints the bytes it reads from a loopback port. */
const readPort = (port: number) => `exec 3<>/dev/tcp/127.0.0.1/${port} && cat <&3`;

testEscape(
  "a remote forward refuses connections from a sandbox, with the network on or off",
  async (fixture) => {
    await using back = await serviceBehindPort(fixture);
    assert.equal(await textFrom(back.port), "secret\n", "an unsandboxed client reaches the service");
    for (let count = 0; count < TRIES; count++) {
      const { output } = await fixture.script(NETWORKED, readPort(back.port));
      assert.doesNotMatch(output, /secret/);
      // Connects from a child in another POSIX session, and from a process that has sent its bytes and exited.
      const detached = await fixture.script(NETWORKED, `(setsid bash -c '${readPort(back.port)}') 2>&1`);
      assert.doesNotMatch(detached.output, /secret/);
      await fixture.script(NETWORKED, `echo gone > /dev/tcp/127.0.0.1/${back.port}`);
    }
    const { output, exitCode } = await fixture.script(readOnly(), `${readPort(back.port)}; exit $?`);
    assert.deepEqual([/secret/.test(output), exitCode === 0], [false, false]);
    assert.equal(back.connectionCount(), 1, "no sandboxed process reached the service");
    // A process outside the sandbox still connects, also while a sandboxed process runs.
    await fixture.client.start("standing", ["/bin/sleep", "60"], { sandbox: NETWORKED });
    assert.equal(await textFrom(back.port), "secret\n");
  },
  ALLOWED,
);

testEscape(
  "a remote forward on a Unix socket refuses connections from a sandbox, with the network on or off",
  async (fixture) => {
    let connectionCount = 0;
    const service = createServer((socket) => {
      connectionCount++;
      socket.on("error", () => undefined).end("secret\n");
    }).listen(0, "127.0.0.1");
    await once(service, "listening");
    using _service = { [Symbol.dispose]: () => service.close() };
    await using client = await NodeExecServerClient.connectWebSocket({ url: fixture.server.url });
    const { port } = service.address() as AddressInfo;
    const path = join(fixture.directory, "back.sock");
    await using _ = await forwardPortBack(client, { path, target: { host: "localhost", port } });
    const reads = `${process.execPath} -e 'require("net").connect("${path}").on("error", (e) => console.log(e.code)).pipe(process.stdout)' 2>&1`;
    for (const sandbox of [readOnly(), NETWORKED]) {
      const { output } = await fixture.script(sandbox, reads);
      assert.doesNotMatch(output, /secret/);
    }
    assert.equal(connectionCount, 0, "no sandboxed process reached the service");
  },
  { serveArgs: () => ["--allow-forward", "any"] },
);

testEscape(
  "a sandboxed command cannot open a forward: the server rejects its connection",
  async (fixture) => {
    for (const words of [`-R 0:localhost:1`, "0:localhost:1"]) {
      const { output, exitCode } = await fixture.script(
        NETWORKED,
        `${PROCWIRE} forward --connect ${fixture.server.url} ${words} 2>&1`,
      );
      assert.notEqual(exitCode, 0);
      assert.doesNotMatch(output, /forwards to/);
      assert.match(output, /403/);
    }
  },
  ALLOWED,
);
