import type { CallOptions, ExecBackend, ProcessListing } from "../../exec/exec-process.ts";
import { checkArgument, checkOptions, nonEmptyText } from "../../exec/options/option-schema.ts";
import type { RunResult } from "../../exec/run/run-program.ts";
import { DisconnectedError } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { InProcessServer } from "../../protocol/in-process.ts";
import type { EnvironmentInfo } from "../../protocol/methods.ts";
import { attachOptions, listOptions } from "../client-options.ts";
import type { ExecServerClientOptions, ExecServerClient as UniversalClient } from "../exec-server-client.ts";
import type { RemoteFiles } from "../files/remote-files.ts";
import type { RemoteHttp } from "../network/remote-http.ts";
import type { AttachedProcess, AttachOptions } from "../process/attached-process.ts";
import type { ListOptions } from "../process/remote-backend.ts";
import type { CommandHost, CommandInput, EnvironmentRunOptions, SpawnOptions } from "./environment-commands.ts";
import { runCommand, spawnCommand } from "./environment-commands.ts";
import { NodeExecServerClient, type SocketClientOptions } from "./node-client.ts";
import { environmentOptions, environmentTarget } from "./node-options.ts";
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
  readonly #isLocal: boolean;
  readonly #release: () => Promise<void>;
  #isClosed = false;

  private constructor(client: UniversalClient, backend: ExecBackend, release: () => Promise<void>) {
    this.files = client.files;
    this.http = client.http;
    this.#client = client;
    this.#backend = backend;
    this.#isLocal = backend !== client.backend;
    this.#release = release;
  }

  /** Creates an environment. `null` is the local host; a string is the URL of a server. */
  static async create(target: string | EnvironmentTarget, options: EnvironmentOptions = {}): Promise<Environment> {
    checkArgument("Environment.create", "target", target, environmentTarget);
    checkOptions("Environment.create", options, environmentOptions);
    if (target === null) return Environment.#createLocal(options);
    if (typeof target === "string") return Environment.#createRemote(target, options);
    if ("url" in target) return Environment.#createRemote(target.url, options);
    const server = await spawnLocalExecServer(target, toClientOptions(options));
    return new Environment(server.client, server.client.backend, () => server.close());
  }

  static async #createLocal(options: EnvironmentOptions): Promise<Environment> {
    if (!options.local)
      throw new Error("cannot create a local environment: `local` is not set; pass `local` or a server URL");
    const services = await options.local();
    const client = await NodeExecServerClient.connectInProcess(services.server, toClientOptions(options));
    return new Environment(client, services.backend, async () => {
      await client.close();
      await services.close();
    });
  }

  static async #createRemote(url: string, options: EnvironmentOptions): Promise<Environment> {
    const { local: _, ...socketOptions } = options;
    const client = await NodeExecServerClient.connectWebSocket({ ...socketOptions, url });
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
  async run(command: CommandInput, options: EnvironmentRunOptions = {}): Promise<RunResult | RunResult<Uint8Array>> {
    return runCommand(this.#commandHost, command, options);
  }

  /**
   * Starts a command. Disposal of the returned process terminates it.
   *
   * @example
   * await using server = await environment.spawn(["npm", "start"], { cwd: "/src", env: { PORT: "8080" } });
   * await server.waitFor("listening");
   */
  async spawn(command: CommandInput, options: SpawnOptions = {}): Promise<SpawnedProcess> {
    return spawnCommand(this.#commandHost, command, options);
  }

  /**
   * Attaches to a process of another environment on the same server by its handle, as `process.handle` and `processes`
   * report it. Disposal of the returned process ends the attachment, not the process. A local environment has no handles
   * and rejects.
   *
   * @example
   * const [listing] = await environment.processes();
   * await using process = await environment.attach(listing.handle, { role: "driver" });
   */
  async attach(handle: string, options: AttachOptions = {}): Promise<AttachedProcess> {
    if (!this.#isLocal) return this.#client.attach(handle, options);
    checkArgument("attach", "handle", handle, nonEmptyText);
    checkOptions("attach", options, attachOptions);
    throw new ExecServerError("attach: not supported by a local environment; requires procwire serve", "UNSUPPORTED");
  }

  /**
   * Lists the processes that this environment may see: of every session of the same principal on a server, of this
   * environment on the local host. `allSessions: false` lists only those of this environment.
   */
  async processes(options: ListOptions = {}): Promise<ProcessListing[]> {
    checkOptions("processes", options, listOptions);
    const { signal, allSessions = true } = options;
    return this.#isLocal ? this.#commandHost.backend.list({ signal }) : this.#client.list({ signal, allSessions });
  }

  get #commandHost(): CommandHost {
    if (this.#isClosed) throw new DisconnectedError("the client was closed");
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
    this.#isClosed = true;
    return this.#release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Returns the options that every transport has. */
function toClientOptions(options: EnvironmentOptions): ExecServerClientOptions {
  const { local, connectTimeoutMs, authToken, codec, tlsCa, tlsCert, tlsKey, insecurePlainToken, ...clientOptions } =
    options;
  return clientOptions;
}
