import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { NetworkProxy } from "../../src/network/network-proxy.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { policy } from "../support/network/network-config.ts";
import { exchange } from "../support/network/proxy-client.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { memoryWire, sh, startParams, WireClient, webSocketWire } from "../support/servers/raw-connection.ts";
import { type ServeChild, serve } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

const MANY = fileURLToPath(new URL("../support/network/many-requests.mjs", import.meta.url));
const web = createServer((_request, response) => response.end("served"));
let server: ServeChild;
let url = "";

before(async () => {
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  url = `http://127.0.0.1:${(web.address() as AddressInfo).port}/`;
  server = await serve("--listen", "ws://127.0.0.1:0");
});
after(async () => {
  web.closeAllConnections();
  web.close();
  await server[Symbol.asyncDispose]();
});

const asking = { proxy: policy({ allowLocalBinding: true }), policyDecisionTimeoutMs: 60_000 };
const allowing = { proxy: policy({ allowLocalBinding: true, domains: { "127.0.0.1": "allow" } }) };

async function connect(): Promise<WireClient> {
  const client = new WireClient(await webSocketWire(server.url));
  await client.handshake();
  return client;
}

const startMany = (client: WireClient, networkProxy: unknown) =>
  client.start("p", [process.execPath, MANY], { networkProxy, pipeStdin: true, env: process.env });
const questions = ({ messages }: WireClient) => messages.filter(({ method }) => method === "network/policyRequest");
const allow = (client: WireClient, id: unknown) =>
  client.raw(JSON.stringify({ id, result: { decision: { type: "allow" } } }));

describe("network/policyRequest", () => {
  test("asks at most 256 questions at once, denies the next request, and asks again after an answer", async () => {
    await using client = await connect();
    await startMany(client, asking);
    await client.write("p", `256 ${url}\n`);
    await until("256 questions", () => questions(client).length === 256);
    await client.write("p", `3 ${url}\n`);
    await client.outputContains("p", 'done {"403":3}\n');
    assert.equal(questions(client).length, 256);
    const denied = client.messages.filter(({ method }) => method === "network/policyDecision");
    assert.deepEqual(
      denied.map(({ params }) => [params?.decision, params?.source, params?.reason]),
      Array(3).fill(["deny", "decider", "not_allowed"]),
    );
    allow(client, 1);
    await until("the allowed request", () => client.messages.some(({ params }) => params?.policyOverride === true));
    await client.write("p", `1 ${url}\n`);
    await until("another question", () => questions(client).length === 257);
    for (const { id } of questions(client).slice(1)) allow(client, id);
    await client.outputContains("p", 'done {"200":256}\n');
    await client.outputContains("p", 'done {"200":1}\n');
    await client.call("process/terminate", { processId: "p" });
  });

  test("denies 5 s after policyDecisionTimeoutMs, and ignores a later answer", async () => {
    const host = new FakeHost();
    const exec = new ExecServer(host);
    const client = new WireClient(memoryWire((connection) => void exec.accept(connection)));
    await client.handshake();
    await client.call("process/start", startParams("p", ["x"], { networkProxy: asking }));
    const clock = new ManualClock();
    const { decideNetwork, onNetworkDecision } = host.process("p").params;
    const proxy = new NetworkProxy({
      ...{ processId: "p", config: asking, clock, isOwnListener: () => false },
      decide: decideNetwork,
      onDecision: onNetworkDecision,
    });
    const { http } = await proxy.listen();
    let response = "";
    const ended = exchange(http, `GET ${url} HTTP/1.1\r\nConnection: close\r\n\r\n`).then((text) => {
      response = text;
    });
    await until("the question", () => questions(client).length === 1);
    await clock.advance(64_999);
    assert.equal(response, "");
    await clock.advance(1);
    await ended;
    assert.match(response, /^HTTP\/1\.1 403 .*"reason":"not_allowed","decision":"deny","source":"decider"/s);
    allow(client, 1);
    // The connection is still open.
    await client.call("process/read", { processId: "p" });
    proxy.close();
    await client.close();
    await exec.close();
  });
});

describe("a network proxy", () => {
  test("resets connections of other processes of the same server", async () => {
    await using client = await connect();
    const proxyOf = async (processId: string) => {
      await until("its variables", () => client.output(processId).endsWith("\n"));
      return client.output(processId).trim();
    };
    for (const processId of ["first", "second"])
      await client.start(
        processId,
        sh(`echo $HTTP_PROXY; read line; curl -s --noproxy '' -w '%{http_code}' -x $line ${url}`),
        {
          ...{ networkProxy: allowing, pipeStdin: true, env: process.env },
        },
      );
    const [first, second] = [await proxyOf("first"), await proxyOf("second")];
    await client.write("first", `${first}\n`);
    await client.write("second", `${first}\n`);
    const own = await client.finished("first");
    const other = await client.finished("second");
    assert.notEqual(first, second);
    assert.deepEqual([own.exitCode, own.output], [0, `${first}\nserved200`]);
    // curl exits with 56: the connection was reset.
    assert.deepEqual([other.exitCode, other.output], [56, `${second}\n000`]);
  });
});
