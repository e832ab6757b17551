/** Runs the app-server of the real Codex in a test network, with a mock model and a recorded exec-server. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";
import {
  completed,
  created,
  functionCall,
  message,
  startMockResponses,
  toolOutputs,
} from "../test/support/models/mock-responses.ts";
import { TestNetwork } from "../test/support/network/test-network.ts";
import type { WireMessage } from "../test/support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild } from "../test/support/servers/serve.ts";
import { until } from "../test/support/system/until.ts";
import { codexHome, configFor, networkProfile } from "./codex-run.ts";

const CODEX = fileURLToPath(new URL("./node_modules/.bin/codex", import.meta.url));
const GOOD = "93.184.216.34";
const [MODEL_PORT, SERVER_PORT] = [9001, 9002];
const SERVERS = { codex: [CODEX, "exec-server"], procwire: [PROCWIRE, "serve"] };

const REQUIREMENTS = `[experimental_network]
enabled = true
[experimental_network.domains]
"good.test" = "allow"
"bad.good.test" = "deny"
`;
const PROFILE = networkProfile({ "good.test": "allow", "bad.good.test": "deny" });

export interface AppServerOptions {
  /** Program that runs the commands: the client itself, the real exec-server, or this package. */
  environment: "local" | "codex" | "procwire";
  /** Top-level settings of `config.toml`. */
  settings: string;
  commands: readonly string[];
  /** Absent: the system has requirements. */
  hasRequirements?: false;
  /** Answer of the model to a review. */
  review?: string;
  /** Decision of the user about every approval. */
  decision?: string;
}

export interface AppServerRun {
  /** Results that the model received, in call order. */
  outputs: string[];
  /** Params of the approval requests to the user. */
  approvals: Record<string, unknown>[];
  /** Messages from and to the exec-server. */
  sent: WireMessage[];
  received: WireMessage[];
  stderr: string;
}

/** Runs one turn, in which the model runs each command. */
export async function runAppServer(options: AppServerOptions): Promise<AppServerRun> {
  using place = codexHome();
  const path = (name: string) => join(place.home, name);
  await using network = await TestNetwork.open({
    names: { "good.test": [[GOOD]], "other.test": [[GOOD]], "bad.good.test": [[GOOD]] },
    servers: [{ address: GOOD, port: 80 }],
    files: options.hasRequirements === false ? {} : { "/etc/codex/requirements.toml": REQUIREMENTS },
    forwards: { [MODEL_PORT]: path("model.sock"), [SERVER_PORT]: path("relay.sock") },
  });
  await using model = await startModel(options, path("model.sock"));
  const env = { PATH: process.env.PATH ?? "", HOME: place.home, CODEX_HOME: path(".codex"), MODEL_KEY: "none" };
  const { environment } = options;
  const command = environment === "local" ? [] : SERVERS[environment];
  await using relay = await startRelay(path("relay.sock"), () => {
    return new ServeChild(["--listen", "stdio"], {
      command: ["env", ...network.command, ...command],
      env,
      stdin: "pipe",
    });
  });
  const config = configFor(`http://127.0.0.1:${MODEL_PORT}/v1`, `${options.settings}${PROFILE}`);
  writeFileSync(join(place.home, ".codex", "config.toml"), config);
  const [program = "", ...args] = [...network.command, CODEX, "app-server"];
  const child = spawn(program, args, {
    stdio: ["pipe", "pipe", "pipe"],
    cwd: place.workspace,
    env: { ...env, ...(environment !== "local" && { CODEX_EXEC_SERVER_URL: `ws://127.0.0.1:${SERVER_PORT}` }) },
  });
  const exited = once(child, "exit");
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const messages: WireMessage[] = [];
  const approvals: Record<string, unknown>[] = [];
  const send = (content: WireMessage) => child.stdin.write(`${JSON.stringify(content)}\n`);
  createInterface({ input: child.stdout }).on("line", (line) => {
    const received: WireMessage = JSON.parse(line);
    messages.push(received);
    if (received.id === undefined || received.method === undefined) return;
    approvals.push({ method: received.method, ...received.params });
    send({ id: received.id, result: { decision: options.decision ?? "cancel" } });
  });
  const answer = async (id: number, method: string, params: Record<string, unknown>) => {
    send({ id, method, params });
    const isAnswer = (one: WireMessage) => one.id === id && one.method === undefined;
    await until(`${method}: ${stderr}`, () => messages.some(isAnswer), exited);
    return messages.find(isAnswer)?.result ?? {};
  };
  try {
    await answer(1, "initialize", { clientInfo: { name: "probe", title: "probe", version: "1" } });
    send({ method: "initialized" });
    const { thread } = await answer(2, "thread/start", { cwd: place.workspace });
    await answer(3, "turn/start", { threadId: Object(thread).id, input: [{ type: "text", text: "go" }] });
    await until("the end of the turn", () => messages.some(({ method }) => method === "turn/completed"), exited);
    if (environment !== "local")
      await until("the end of the process", () => relay.received.some(({ method }) => method === "process/exited"));
  } finally {
    child.stdin.end();
    child.kill();
    await exited;
  }
  return { outputs: model.outputs(), approvals, sent: relay.sent, received: relay.received, stderr };
}

/** A model behind a Unix socket. It answers requests for a review, which have a schema, with `review`. */
async function startModel({ commands, review = "" }: AppServerOptions, socketPath: string) {
  const isReview = (body: Record<string, unknown>) => Object(body.text).format !== undefined;
  const model = await startMockResponses(({ body }) => {
    const done = toolOutputs(body).length;
    const cmd = commands[done];
    const call = () => functionCall(`call-${done}`, "exec_command", { cmd, login: false });
    const next = cmd === undefined ? message("done") : call();
    return { type: "sse", events: [created(), isReview(body) ? message(review) : next, completed()] };
  });
  const server = createServer((socket) => {
    pipeline(socket, connect(Number(new URL(model.url).port), "127.0.0.1"), socket, () => undefined);
  }).listen(socketPath);
  await once(server, "listening");
  return {
    outputs: () => toolOutputs(model.requests.filter(({ body }) => !isReview(body)).at(-1)?.body ?? {}),
    async [Symbol.asyncDispose]() {
      server.close();
      await model.close();
    },
  };
}

/** Accepts WebSocket connections on a Unix socket, relays each to a new server on stdio, and records all messages. */
async function startRelay(socketPath: string, startServer: () => ServeChild) {
  const sent: WireMessage[] = [];
  const received: WireMessage[] = [];
  const servers: ServeChild[] = [];
  const http = createHttpServer();
  const sockets = new WebSocketServer({ server: http });
  sockets.on("connection", (socket) => {
    const server = startServer();
    servers.push(server);
    const { stdin, stdout } = server.child;
    assert.ok(stdin && stdout);
    createInterface({ input: stdout }).on("line", (text) => {
      received.push(JSON.parse(text));
      socket.send(text);
    });
    socket.on("message", (data) => {
      sent.push(JSON.parse(String(data)));
      stdin.write(`${data}\n`);
    });
    socket.on("close", () => stdin.end());
  });
  http.listen(socketPath);
  await once(http, "listening");
  return {
    sent,
    received,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets.clients) socket.terminate();
      http.close();
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    },
  };
}
