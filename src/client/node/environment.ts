import type { CallOptions, ExecBackend } from "../../exec/exec-process.ts";
import type { RunResult } from "../../exec/run/run-program.ts";
import type { InProcessServer } from "../../protocol/in-process.ts";
import type { EnvironmentInfo } from "../../protocol/methods.ts";
import type { ExecServerClient as UniversalClient } from "../exec-server-client.ts";
import type { RemoteFiles } from "../files/remote-files.ts";
import type { RemoteHttp } from "../network/remote-http.ts";
import {
  type Command,
  type CommandHost,
  type EnvironmentRunOptions,
  runCommand,
  type SpawnOptions,
  spawnCommand,
} from "./environment-commands.ts";
import { ExecServerClient, type SocketClientOptions } from "./node-client.ts";
import { type ExecServerLaunchCommand, spawnLocalExecServer } from "./spawn-exec-server.ts";
import type { SpawnedProcess } from "./spawned-process.ts";

/** Where an environment is: here, behind a URL, or behind the stdio of a program. */
export type EnvironmentTarget = null | { url: string } | ExecServerLaunchCommand;

/** This machine, given by the composition root: the client library itself cannot start processes. */
export interface LocalEnvironmentParts {
  /** Starts processes here, with nothing in between. */
  backend: ExecBackend;
  /** Offers the files, the HTTP requests and the facts of this machine. */
  server: InProcessServer;
  close(): Promise<void>;
}

export interface EnvironmentOptions extends SocketClientOptions {
  /** Needed for `null` only. */
  local?: () => LocalEnvironmentParts | Promise<LocalEnvironmentParts>;
}

/**
 * A place where work is done, the same whether it is here or far away.
 *
 * @example
 * await using environment = await Environment.create("ws://127.0.0.1:7070");
 * const { stdout } = await environment.run(["uname", "-a"]);
 * const hosts = await environment.files.readText("/etc/hosts");
 */
export class Environment implements AsyncDisposable {
  readonly #client: UniversalClient;
  readonly #backend: ExecBackend;
  readonly #release: () => Promise<void>;

  private constructor(client: UniversalClient, backend: ExecBackend, release: () => Promise<void>) {
    this.#client = client;
    this.#backend = backend;
    this.#release = release;
  }

  /** `null` is this machine; a text is a server's URL. */
  static async create(
    target: string | EnvironmentTarget,
    options: EnvironmentOptions = {},
  ): Promise<Environment> {
    if (target === null) return Environment.#here(options);
    if (typeof target === "string") return Environment.#at(target, options);
    if ("url" in target) return Environment.#at(target.url, options);
    const server = await spawnLocalExecServer(target, options);
    return new Environment(server.client, server.client.backend, () => server.close());
  }

  static async #here(options: EnvironmentOptions): Promise<Environment> {
    if (!options.local) throw new Error("no local backend was given: only a server's URL can be used here");
    const parts = await options.local();
    const client = await ExecServerClient.connectInProcess(parts.server, options);
    return new Environment(client, parts.backend, async () => {
      await client.close();
      await parts.close();
    });
  }

  static async #at(url: string, options: EnvironmentOptions): Promise<Environment> {
    const client = await ExecServerClient.connectWebSocket({ ...options, url });
    return new Environment(client, client.backend, () => client.close());
  }

  /**
   * Runs a program to its end. Rejects with a CommandError when it fails, unless `reject` is false. The output is text,
   * or bytes with `encoding: "buffer"`.
   *
   * @example
   * const { stdout } = await environment.run(["git", "status", "--short"], { cwd: "/src" });
   */
  run(
    command: Command,
    options: EnvironmentRunOptions & { encoding: "buffer" },
  ): Promise<RunResult<Uint8Array>>;
  run(
    command: Command,
    options?: EnvironmentRunOptions & { encoding?: "utf8" | undefined },
  ): Promise<RunResult>;
  run(command: Command, options: EnvironmentRunOptions = {}): Promise<RunResult | RunResult<Uint8Array>> {
    return runCommand(this.#commandHost, command, options);
  }

  /**
   * Starts a program and gives a handle on it, which ends it when disposed of.
   *
   * @example
   * await using server = await environment.spawn(["npm", "start"], { cwd: "/src", env: { PORT: "8080" } });
   * await server.waitFor("listening");
   */
  spawn(command: Command, options: SpawnOptions = {}): Promise<SpawnedProcess> {
    return spawnCommand(this.#commandHost, command, options);
  }

  get #commandHost(): CommandHost {
    return { backend: this.#backend, exists: (path) => this.files.exists(path) };
  }

  /** Starts processes in this environment. */
  getExecBackend(): ExecBackend {
    return this.#backend;
  }

  get files(): RemoteFiles {
    return this.#client.files;
  }

  get http(): RemoteHttp {
    return this.#client.http;
  }

  /** Shell, directories and capabilities of the host. */
  info(options?: CallOptions): Promise<EnvironmentInfo> {
    return this.#client.info(options);
  }

  close(): Promise<void> {
    return this.#release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
