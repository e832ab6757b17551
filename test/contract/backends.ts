import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { RemoteFiles } from "../../src/client/files/remote-files.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { spawnLocalExecServer } from "../../src/client/node/spawn-exec-server.ts";
import type { ExecBackend } from "../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { Environment } from "../../src/host/local-environment.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { ENTRY } from "../support/servers/run-cli.ts";
import { serveOn } from "../support/servers/sockets.ts";

/** A backend under test. */
export interface ContractBackend {
  backend: ExecBackend;
  /** Files of the host, if the backend offers them. */
  files?: RemoteFiles;
  close(): Promise<void>;
}

/** Command that starts a server from the sources. */
export const SERVE = { program: process.execPath, args: [ENTRY, "serve"] };

/** The local backend. */
export async function local(): Promise<ContractBackend> {
  const backend = createLocalBackend();
  return { backend, close: () => backend[Symbol.asyncDispose]() };
}

/** The local environment. */
export async function localEnvironment(): Promise<ContractBackend> {
  const environment = await Environment.create(null);
  return {
    backend: environment.getExecBackend(),
    files: environment.files,
    close: () => environment.close(),
  };
}

/** An in-process server. */
export async function inProcess(): Promise<ContractBackend> {
  const server = new ExecServer(createLocalHost());
  const client = await NodeExecServerClient.connectInProcess(server);
  return {
    backend: client.backend,
    files: client.files,
    close: async () => {
      await client.close();
      await server.close();
    },
  };
}

/** A server as a child process on stdio. */
export async function stdio(): Promise<ContractBackend> {
  const spawned = await spawnLocalExecServer(SERVE);
  const { backend, files } = spawned.client;
  return { backend, files, close: () => spawned.close() };
}

export async function webSocket(): Promise<ContractBackend> {
  const server = await startServer("ws://127.0.0.1:0");
  const client = await NodeExecServerClient.connectWebSocket({ url: server.url });
  return {
    backend: client.backend,
    files: client.files,
    close: async () => {
      await client.close();
      await server.stop();
    },
  };
}

/** A WebSocket server in this process, on Node's sockets. */
export async function nodeSocket(): Promise<ContractBackend> {
  const server = await serveOn("Node's sockets");
  const client = await NodeExecServerClient.connectWebSocket({ url: server.url });
  return {
    backend: client.backend,
    files: client.files,
    close: async () => {
      await client.close();
      await server.close();
    },
  };
}

export async function unixSocket(): Promise<ContractBackend> {
  const directory = await mkdtemp(join(tmpdir(), "procwire-contract-"));
  const path = join(directory, "server.sock");
  const server = await startServer(`unix://${path}`);
  const client = await NodeExecServerClient.connectUnix({ path });
  return {
    backend: client.backend,
    files: client.files,
    close: async () => {
      await client.close();
      await server.stop();
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

export interface RunningServer {
  url: string;
  pid: number;
  /** Terminates the server with SIGTERM and waits for its exit. */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/** Starts a server process; resolves when it listens. */
export async function startServer(listen: string, flags: string[] = []): Promise<RunningServer> {
  const child = spawn(SERVE.program, [...SERVE.args, "--listen", listen, ...flags], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let problems = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    problems = (problems + text).slice(-4000);
  });
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, "line"), exited.then(() => null)]);
  if (!first) throw new Error(`the server ended before it listened: ${problems}`);
  return {
    url: String(first[0]),
    pid: child.pid ?? 0,
    stop: async (signal = "SIGTERM") => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal);
      await exited;
    },
  };
}
