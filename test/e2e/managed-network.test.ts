import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { collectOutput } from "../../src/exec/run/collect-output.ts";
import type { NetworkDecision } from "../../src/protocol/network/network-schemas.ts";
import { policy } from "../support/network/network-config.ts";
import { exchange } from "../support/network/proxy-client.ts";
import { sh, startParams, WireClient, webSocketWire } from "../support/servers/raw-connection.ts";
import { type ServeChild, serve } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

const web = createHttpServer((request, response) => response.end(`hello ${request.url}`));
let server: ServeChild;
let url = "";

before(async () => {
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  url = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  server = await serve("--listen", "ws://127.0.0.1:0");
});
after(async () => {
  web.closeAllConnections();
  web.close();
  await server[Symbol.asyncDispose]();
});

const CURL = "curl -sS --noproxy ''";
const asking = { proxy: policy({ allowLocalBinding: true }), policyDecisionTimeoutMs: 60_000 };
const allowing = { proxy: policy({ allowLocalBinding: true, domains: { "127.0.0.1": "allow" } }) };

async function connect(params: Record<string, unknown> = {}): Promise<WireClient> {
  const client = new WireClient(await webSocketWire(server.url));
  await client.handshake(params);
  return client;
}

function start(client: WireClient, processId: string, script: string, networkProxy: unknown) {
  return client.call("process/start", startParams(processId, sh(script), { networkProxy, env: process.env }));
}

const questions = (client: WireClient) => client.messages.filter(({ method }) => method === "network/policyRequest");
const decisions = (client: WireClient) => client.messages.filter(({ method }) => method === "network/policyDecision");

describe("process/start with networkProxy", () => {
  const rejected: [networkProxy: unknown, message: string][] = [
    [5, "invalid type: number, expected struct RemoteNetworkProxyLaunchConfig"],
    [{}, "missing field `proxy`"],
    [
      { proxy: policy({ enabled: false }) },
      "invalid network proxy config: executor-local network proxy launch requires an enabled proxy",
    ],
    [{ ...asking, policyDecisionTimeoutMs: 0 }, "network policy decision callback timeout must be nonzero"],
  ];
  for (const [networkProxy, message] of rejected)
    test(`rejects: ${message}`, async () => {
      await using client = await connect();
      const error = await client.refused("process/start", startParams("p", ["true"], { networkProxy }));
      assert.deepEqual([error.code, error.message], [-32602, message]);
    });

  test("sets the proxy variables, and reports decisions to a Codex client", async () => {
    await using client = await connect();
    const script = `echo $HTTP_PROXY $ALL_PROXY $CODEX_NETWORK_PROXY_ACTIVE; ${CURL} ${url}/a; ${CURL} -x $ALL_PROXY ${url}/b; ${CURL} http://other.test/`;
    await start(client, "p", script, allowing);
    const output = (await client.finished("p")).output;
    assert.match(
      output,
      /^http:\/\/127\.0\.0\.1:\d+ socks5h:\/\/127\.0\.0\.1:\d+ 1\nhello \/ahello \/b\{"status":"blocked"/,
    );
    assert.deepEqual(
      decisions(client).map(({ params }) => [params?.processId, params?.protocol, params?.decision, params?.reason]),
      [
        ["p", "http", "allow", "allow"],
        ["p", "socks5_tcp", "allow", "allow"],
        ["p", "http", "deny", "not_allowed"],
      ],
    );
  });

  test("accepts connections of the process tree only, also from descendants that outlive the leader", async () => {
    await using client = await connect();
    const script = `exec 3<&0; echo $HTTP_PROXY; (read line <&3; ${CURL} ${url}/late; read line <&3) &`;
    await client.start("p", sh(script), { networkProxy: allowing, pipeStdin: true, env: process.env });
    await client.notification("process/exited", "p");
    await client.write("p", "one\n");
    await until("the output of the descendant", () => /127\.0\.0\.1:\d+\n[\s\S]*hello \/late/.test(client.output("p")));
    const port = Number(/:(\d+)\n/.exec(client.output("p"))?.[1]);
    assert.equal(await exchange(port, `GET ${url}/x HTTP/1.1\r\n\r\n`), "<ECONNRESET>");
    await client.write("p", "two\n");
    await client.notification("process/closed", "p");
    assert.equal(await exchange(port, "GET / HTTP/1.1\r\n\r\n"), "<ECONNREFUSED>");
  });

  test("never reaches a listener of the server or the proxy of another process", async () => {
    await using client = await connect();
    const all = { proxy: policy({ allowLocalBinding: true, domains: { "127.0.0.1": "allow", localhost: "allow" } }) };
    await start(client, "other", "echo $HTTP_PROXY; sleep 60", all);
    await until("the variables of the other process", () => client.output("other").endsWith("\n"));
    const otherProxy = client.output("other").trim();
    const { port } = new URL(server.url);
    const targets = [`http://127.0.0.1:${port}/healthz`, `http://localhost:${port}/healthz`, `${otherProxy}/`];
    await start(client, "p", targets.map((target) => `${CURL} ${target}; echo`).join("; "), all);
    const lines = (await client.finished("p")).output.trim().split("\n");
    assert.equal(lines.length, targets.length);
    for (const line of lines) assert.match(line, /"reason":"not_allowed_local"/);
  });
});

describe("network/policyRequest", () => {
  test("asks with ids from 1, and takes responses in any order while a read waits", async () => {
    await using client = await connect();
    await start(client, "p", `(${CURL} ${url}/1; echo) & (${CURL} ${url}/2; echo) & wait`, asking);
    const reading = client.request("process/read", { processId: "p", afterSeq: 1000, waitMs: 60_000 });
    await until("two questions", () => questions(client).length === 2);
    assert.deepEqual(
      questions(client).map(({ id }) => id),
      [1, 2],
    );
    const { port } = new URL(url);
    assert.deepEqual(questions(client)[0]?.params, {
      processId: "p",
      request: { protocol: "http", host: "127.0.0.1", port: Number(port) },
    });
    client.raw(JSON.stringify({ id: 2, result: { decision: { type: "deny", reason: "user_said_no" } } }));
    client.raw(JSON.stringify({ id: 1, result: { decision: { type: "allow" } } }));
    const output = (await client.finished("p")).output;
    assert.match(output, /hello \//);
    assert.match(output, /"reason":"user_said_no","decision":"deny","source":"decider"/);
    assert.deepEqual(
      decisions(client)
        .map(({ params }) => [params?.decision, params?.source, params?.reason, params?.policyOverride])
        .sort(),
      [
        ["allow", "decider", "not_allowed", true],
        ["deny", "decider", "user_said_no", false],
      ],
    );
    await reading;
  });

  for (const [title, answer] of [
    ["an error", { error: { code: -32601, message: "no" } }],
    ["an unknown decision", { result: { decision: { type: "maybe" } } }],
    ["a reason with a control character", { result: { decision: { type: "deny", reason: "a\nb" } } }],
  ] as const)
    test(`denies with not_allowed after ${title}`, async () => {
      await using client = await connect();
      await start(client, "p", `${CURL} ${url}/`, asking);
      await until("the question", () => questions(client).length === 1);
      client.raw(JSON.stringify({ id: 1, ...answer }));
      assert.match((await client.finished("p")).output, /"reason":"not_allowed","decision":"deny","source":"decider"/);
      // A late response is ignored; the connection stays open.
      client.raw(JSON.stringify({ id: 1, result: { decision: { type: "allow" } } }));
      await client.call("environment/status", {});
    });

  test("closes the connection after a response to a request that was never sent", async () => {
    await using client = await connect();
    client.raw(JSON.stringify({ id: 1, result: {} }));
    await client.ended();
  });

  test("denies when the connection is lost, and asks the connection that resumes the session", async () => {
    const first = await connect();
    const script = `${CURL} ${url}/1; echo; read line; ${CURL} ${url}/2`;
    await first.call(
      "process/start",
      startParams("p", sh(script), { networkProxy: asking, pipeStdin: true, env: process.env }),
    );
    await until("the question", () => questions(first).length === 1);
    first.cut();
    await first.ended();
    await using second = await connect({ resumeSessionId: first.sessionId });
    const read = async () => JSON.stringify(await second.call("process/read", { processId: "p" }));
    await until("the denied request", async () => (await read()).includes("chunk"));
    await second.call("process/write", { processId: "p", chunk: btoa("go\n"), writeId: "1" });
    await until("the second question", () => questions(second).length === 1);
    assert.equal(questions(second)[0]?.id, 1);
    second.raw(JSON.stringify({ id: 1, result: { decision: { type: "allow" } } }));
    await second.notification("process/closed", "p");
    const chunks = (await second.call("process/read", { processId: "p" })).chunks as { chunk: string }[];
    const output = chunks.map(({ chunk }) => atob(chunk)).join("");
    assert.match(output, /"reason":"not_allowed","decision":"deny","source":"decider"[^\n]*\nhello \/2$/);
  });
});

describe("client library", () => {
  test("answers questions with decideNetwork, and reports decisions", async () => {
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const asked: string[] = [];
    const reported: NetworkDecision[] = [];
    const process = await client.start({
      ...{ processId: "p", argv: sh(`${CURL} ${url}/1; ${CURL} ${url}/2`), cwd: "/", tty: false },
      env: globalThis.process.env as Record<string, string>,
      networkProxy: asking,
      decideNetwork: async ({ host, method, client: address }) => {
        asked.push(`${method} ${host} ${/^127\.0\.0\.1:\d+$/.test(address ?? "")}`);
        return asked.length === 1 ? { type: "allow" } : { type: "deny", reason: "no" };
      },
      onNetworkDecision: (decision) => reported.push(decision),
    });
    const stdout = Buffer.from((await collectOutput(process)).stdout).toString();
    assert.match(stdout, /^hello \/1\{"status":"blocked".*"reason":"no"/);
    assert.deepEqual(asked, ["GET 127.0.0.1 true", "GET 127.0.0.1 true"]);
    assert.deepEqual(
      reported.map(({ decision, policyOverride }) => [decision, policyOverride]),
      [
        ["allow", true],
        ["deny", false],
      ],
    );
  });
});
