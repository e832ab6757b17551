/**
 * Runs the steps of `network-steps.ts` on an exec-server within a new network and mount namespace. Arguments: the command of
 * the server, which prints its URL. Prints the responses, decisions and DNS queries as one line of JSON.
 */

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import type { NetworkDecision, NetworkProxyConfig } from "../../../src/protocol/network/network-schemas.ts";
import { startDns } from "./dns-server.ts";
import { policy } from "./network-config.ts";
import { resumeWithQuestion } from "./network-resume.ts";
import {
  ADDRESSES,
  ASKING_STEPS,
  DOMAINS,
  KEEP_ALIVE_STEPS,
  LIMITED_STEPS,
  LOCAL_ADDRESSES,
  type NetworkStep,
  REVIEW_STEPS,
  STEPS,
  UPSTREAM_STEPS,
} from "./network-steps.ts";

const directory = mkdtempSync(join(tmpdir(), "procwire-network-"));
const ip = (...args: string[]) => execFileSync("ip", args);

function replaceFile(path: string, text: string): void {
  const file = join(directory, path.replaceAll("/", "_"));
  writeFileSync(file, text);
  execFileSync("mount", ["--bind", file, path]);
}

/** Request lines and hosts that the upstream proxy received. */
const upstreamRequests: string[] = [];

function startUpstream(): void {
  const report = ({ method, url, headers }: IncomingMessage) =>
    upstreamRequests.push(`${method} ${url} host=${headers.host}`);
  createHttpServer((request, response) => {
    report(request);
    response.end("via upstream\n");
  })
    .on("connect", (request: IncomingMessage, socket: Duplex) => {
      report(request);
      socket.on("error", () => undefined);
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      socket.on("data", (data) => socket.write(`upstream ECHO:${data}`));
    })
    .listen(19_999, "127.0.0.1");
}

function startServers(): void {
  for (const [address, port] of [
    ["93.184.216.34", 80],
    ["93.184.216.34", 8080],
    ["93.184.216.35", 80],
    ["10.1.2.3", 80],
    ["127.0.0.1", 18_000],
  ] as const)
    createHttpServer((request, response) => {
      const { method, url, headers } = request;
      const text = `hello from ${address}:${port} ${method} ${url} host=${headers.host}\n`;
      request.resume().on("end", () => response.end(text));
    }).listen(port, address);
  for (const address of ["93.184.216.34", "10.1.2.3"])
    createServer((socket) => {
      socket.on("error", () => undefined);
      socket.on("data", (data) => socket.write(`ECHO:${data}`));
    }).listen(443, address);
  startUpstream();
}

ip("link", "set", "lo", "up");
for (const address of LOCAL_ADDRESSES) ip("addr", "add", `${address}/32`, "dev", "lo");
replaceFile("/etc/hosts", "127.0.0.1 localhost\n");
replaceFile("/etc/resolv.conf", "nameserver 127.0.0.53\noptions timeout:1 attempts:1\n");
const queries: string[] = [];
const answers = Object.fromEntries(Object.entries(ADDRESSES).map(([name, addresses]) => [name, [addresses]]));
await startDns(answers, (query) => queries.push(query));
startServers();

const [program = "", ...args] = process.argv.slice(2);
const decisions: NetworkDecision[] = [];

/** Starts the server with these variables and arguments. */
async function openServer(env: Record<string, string> = {}, more: readonly string[] = []) {
  const server = spawn(program, [...args, ...more], {
    stdio: ["ignore", "pipe", "ignore"],
    env: { PATH: process.env.PATH, HOME: directory, CODEX_HOME: directory, ...env },
  });
  const exited = once(server, "exit");
  const [line] = await once(createInterface({ input: server.stdout }), "line");
  const url = String(line);
  const client = await NodeExecServerClient.connectWebSocket({ url });
  return {
    url,
    client,
    async [Symbol.asyncDispose]() {
      await client.close();
      server.kill();
      await exited;
    },
  };
}

async function probe(
  client: NodeExecServerClient,
  processId: string,
  steps: readonly NetworkStep[],
  networkProxy: NetworkProxyConfig,
): Promise<unknown> {
  const started = await client.start({
    ...{ processId, cwd: "/", tty: false, env: { PATH: process.env.PATH ?? "" }, networkProxy },
    argv: [process.execPath, fileURLToPath(new URL("proxy-probe.mjs", import.meta.url)), JSON.stringify(steps)],
    onNetworkDecision: (decision) => decisions.push(decision),
    decideNetwork: async ({ host }) => (host === "other.test" ? { type: "allow" } : { type: "deny", reason: "no" }),
  });
  let output = "";
  for await (const event of started.events())
    if (event.type === "output") output += Buffer.from(event.chunk).toString();
  return JSON.parse(output);
}

async function probePolicies() {
  await using server = await openServer();
  const { client, url } = server;
  const reviewing = policy({
    domains: { ...DOMAINS, "other.test": "allow" },
    reviewDomains: ["good.test", "other.test"],
  });
  const asking = { policyDecisionTimeoutMs: 30_000 };
  const limited = policy({ mode: "limited", domains: DOMAINS });
  return {
    responses: await probe(client, "p", STEPS, { proxy: policy({ domains: DOMAINS }) }),
    asked: await probe(client, "asking", ASKING_STEPS, { proxy: policy({}), ...asking }),
    limited: await probe(client, "limited", LIMITED_STEPS, { proxy: limited }),
    reviewed: await probe(client, "reviewed", REVIEW_STEPS, { proxy: reviewing, ...asking }),
    unasked: await probe(client, "unasked", REVIEW_STEPS, { proxy: reviewing }),
    kept: await probe(client, "kept", KEEP_ALIVE_STEPS, { proxy: policy({ domains: DOMAINS }) }),
    resumed: await resumeWithQuestion(url),
  };
}

const UPSTREAM = "http://127.0.0.1:19999";

/** Variables and arguments of servers whose proxies may use an upstream proxy. */
const UPSTREAM_SERVERS: Readonly<Record<string, [env: Record<string, string>, args?: readonly string[]]>> = {
  both: [{ HTTP_PROXY: UPSTREAM, HTTPS_PROXY: UPSTREAM }],
  "private addresses too": [{ HTTP_PROXY: UPSTREAM, HTTPS_PROXY: UPSTREAM }, ["--proxy-private-ips-via-upstream"]],
  HTTP_PROXY: [{ HTTP_PROXY: UPSTREAM }],
  http_proxy: [{ http_proxy: UPSTREAM }],
  HTTPS_PROXY: [{ HTTPS_PROXY: UPSTREAM }],
  ALL_PROXY: [{ ALL_PROXY: UPSTREAM }],
  "ALL_PROXY with SOCKS5": [{ ALL_PROXY: "socks5://127.0.0.1:19999" }],
  NO_PROXY: [{ HTTP_PROXY: UPSTREAM, NO_PROXY: "good.test" }],
};

/** Probes every server with and without permission to use the upstream proxy. */
async function probeUpstream() {
  const found: Record<string, { responses: unknown; requests: string[] }> = {};
  for (const [name, [env, more]] of Object.entries(UPSTREAM_SERVERS)) {
    await using server = await openServer(env, more);
    for (const allowUpstreamProxy of name === "both" ? [true, false] : [true]) {
      const domains = { ...DOMAINS, "127.0.0.1": "allow" } as const;
      const id = `${name}, ${allowUpstreamProxy}`;
      upstreamRequests.length = 0;
      const responses = await probe(server.client, id, UPSTREAM_STEPS, {
        proxy: policy({ allowUpstreamProxy, domains }),
      });
      found[id] = { responses, requests: [...upstreamRequests] };
    }
  }
  return found;
}

const result = { ...(await probePolicies()), upstream: await probeUpstream(), decisions, queries };
process.stdout.write(`${JSON.stringify(result)}\n`);
rmSync(directory, { recursive: true, force: true });
process.exit();
