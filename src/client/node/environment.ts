import type { CallOptions, ExecBackend } from "../../exec/exec-process.ts";
import type { RunResult } from "../../exec/run/run-program.ts";
import type { InProcessServer } from "../../protocol/in-process.ts";
import type { EnvironmentInfo } from "../../protocol/methods.ts";
import type { ExecServerClient as UniversalClient } from "../exec-server-client.ts";
import type { RemoteFiles } from "../files/remote-files.ts";
import type { RemoteHttp } from "../network/remote-http.ts";
import {
  type CommandHost,
  type CommandInput,
  type EnvironmentRunOptions,
  runCommand,
  type SpawnOptions,
  spawnCommand,
} from "./environment-commands.ts";
import { NodeExecServerClient, type SocketClientOptions } from "./node-client.ts";
import { type ExecServerLaunchCommand, spawnLocalExecServer } from "./spawn-exec-server.ts";
import type { SpawnedProcess } from "./spawned-process.ts";

/** Location of an environment: null for the local host, a URL, or a command whose stdio is the transport. */
export type EnvironmentTarget = null | { url: string } | ExecServerLaunchCommand;

/** Local services, supplied by the caller: the client library itself cannot start processes. */
export interface LocalEnvironmentServices {
  /** Starts local processes directly. */
  backend: ExecBackend;
  /** Provides files, HTTP requests and properties of the local host. */
  server: InProcessServer;
  close(): Promise<void>;
}

export interface EnvironmentOptions extends SocketClientOptions {
  /** Required only for target `null`. */
  local?: () => LocalEnvironmentServices | Promise<LocalEnvironmentServices>;
}

/**
 * An environment in which commands run, local or remote, with the same interface.
 *
 * @example
 * await using environment = await Environment.create("ws://127.0.0.1:7070");
 * const { stdout } = await environment.run(["uname", "-a"]);
 * const hosts = await environment.files.readText("/etc/hosts");
 */
export class Environment implements AsyncDisposable {
  readonly files: RemoteFiles;
  readonly http: RemoteHttp;
  readonly #client: UniversalClient;
  readonly #backend: ExecBackend;
  readonly #release: () => Promise<void>;

  private constructor(client: UniversalClient, backend: ExecBackend, release: () => Promise<void>) {
    this.files = client.files;
    this.http = client.http;
    this.#client = client;
    this.#backend = backend;
    this.#release = release;
  }

  /** Creates an environment. `null` is the local host; a string is the URL of a server. */
  static async create(target: string | EnvironmentTarget, options: EnvironmentOptions = {}): Promise<Environment> {
    if (target === null) return Environment.#createLocal(options);
    if (typeof target === "string") return Environment.#createRemote(target, options);
    if ("url" in target) return Environment.#createRemote(target.url, options);
    const server = await spawnLocalExecServer(target, options);
    return new Environment(server.client, server.client.backend, () => server.close());
  }

  static async #createLocal(options: EnvironmentOptions): Promise<Environment> {
    if (!options.local)
      throw new Error("cannot create a local environment: `local` is not set; pass `local` or a server URL");
    const services = await options.local();
    const client = await NodeExecServerClient.connectInProcess(services.server, options);
    return new Environment(client, services.backend, async () => {
      await client.close();
      await services.close();
    });
  }

  static async #createRemote(url: string, options: EnvironmentOptions): Promise<Environment> {
    const client = await NodeExecServerClient.connectWebSocket({ ...options, url });
    return new Environment(client, client.backend, () => client.close());
  }

  /**
   * Runs a command until it exits. Rejects with a CommandError if it fails, unless `reject` is false. The output is text,
   * or bytes with `encoding: "buffer"`.
   *
   * @example
   * const { stdout } = await environment.run(["git", "status", "--short"], { cwd: "/src" });
   */
  run(command: CommandInput, options: EnvironmentRunOptions & { encoding: "buffer" }): Promise<RunResult<Uint8Array>>;
  run(command: CommandInput, options?: EnvironmentRunOptions & { encoding?: "utf8" | undefined }): Promise<RunResult>;
  run(command: CommandInput, options: EnvironmentRunOptions = {}): Promise<RunResult | RunResult<Uint8Array>> {
    return runCommand(this.#commandHost, command, options);
  }

  /**
   * Starts a command. Disposal of the returned process terminates it.
   *
   * @example
   * await using server = await environment.spawn(["npm", "start"], { cwd: "/src", env: { PORT: "8080" } });
   * await server.waitFor("listening");
   */
  spawn(command: CommandInput, options: SpawnOptions = {}): Promise<SpawnedProcess> {
    return spawnCommand(this.#commandHost, command, options);
  }

  get #commandHost(): CommandHost {
    return { backend: this.#backend, exists: (path) => this.files.exists(path) };
  }

  /** Returns the backend that starts processes in this environment. */
  getExecBackend(): ExecBackend {
    return this.#backend;
  }

  /** Returns shell, directories and capabilities of the host. */
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
