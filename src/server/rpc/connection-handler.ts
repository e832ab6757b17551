import { ByteSemaphore } from "../../async/byte-semaphore.ts";
import { systemClock } from "../../async/clock.ts";
import { LazyResource } from "../../async/lazy-resource.ts";
import { stricterRequirement, toSandboxRequirement } from "../../exec/backend/sandbox-requirement.ts";
import { invalidRequest, ProtocolError } from "../../protocol/errors.ts";
import type { HttpBodyDelta } from "../../protocol/http-schemas.ts";
import type { Extension, Family, MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import { EXTENSIONS, methods, PROTOCOL_VERSION } from "../../protocol/methods.ts";
import type { Actor } from "../audit/audit-event.ts";
import { AuditedCalls } from "../audit/audited-calls.ts";
import { requireScope } from "../auth/method-scopes.ts";
import { type Principal, quotaOwner } from "../auth/principal.ts";
import { requireShareAccess } from "../auth/share-permissions.ts";
import { type ConsoleAccess, consoleMethods } from "../console/console-access.ts";
import { ConnectionForwards } from "../forward/forward-methods.ts";
import type { HostServices, HttpRequestScope } from "../host-services.ts";
import { questionMethods } from "../network/question-methods.ts";
import { MAX_QUEUED_BYTES, type ServerConfig } from "../server-config.ts";
import type { ConnectionMemory, ServerResources } from "../server-resources.ts";
import type { Session } from "../session/session.ts";
import type { SessionClient } from "../session/session-process.ts";
import type { SessionRegistry, TakeoverPolicy } from "../session/session-registry.ts";
import { type AccessMethodDeps, accessMethods } from "./access-methods.ts";
import { attachMethods } from "./attach-methods.ts";
import { ConnectionFiles, lazyFileMethods } from "./file-methods.ts";
import type { CallContext, Caller, Handlers } from "./handler-types.ts";
import type { Peer } from "./peer.ts";
import { confined, processMethods, type StartConfinement } from "./process-methods.ts";
import { discoverRoots } from "./sandboxed-capability-roots.ts";
import { V0Processes } from "./v0-methods.ts";

type Handshake =
  | { type: "new" }
  /** The server has sent the response to `initialize`. Other methods need the `initialized` notification first. */
  | { type: "initialized" | "ready"; session: Session; client: SessionClient };

export interface ConnectionHandlerDeps {
  /** Authenticated principal of the connection. */
  principal: Principal;
  host: HostServices;
  sessions: SessionRegistry;
  config: ServerConfig;
  resources: ServerResources;
  /** Returns the web console of the server, or null if it has none. */
  console: () => ConsoleAccess | null;
  /** Connections and console sessions of the server. */
  accesses: AccessMethodDeps["accesses"];
  authenticator: AccessMethodDeps["authenticator"];
}

/**
 * Name of the Codex client. It reads its capabilities from the handshake alone, so its handshake waits until they are known,
 * which takes tens of milliseconds once. Other clients call `environment/info`.
 */
const CODEX_CLIENT_NAME = "codex-environment";

/** The typed side of one connection: handshake, access checks, and one handler per method. Independent of JSON. */
export class ConnectionHandler {
  readonly #peer: Peer;
  readonly #deps: ConnectionHandlerDeps;
  readonly #v0: V0Processes;
  readonly #forwards: ConnectionForwards;
  readonly #methods: Handlers;
  /** Null if the server has no audit log. */
  readonly #audited: AuditedCalls | null;
  /** Limits the response bytes of this connection to the send queue limit. A larger response is sent alone. */
  readonly #responseBytes = new ByteSemaphore(MAX_QUEUED_BYTES);
  readonly memory: ConnectionMemory;
  readonly #httpRequests: ReturnType<ServerResources["httpRequests"]["perConnection"]>;
  readonly #disconnected = new AbortController();
  /** Created by the first request about files, because most connections make none. */
  #files: LazyResource<ConnectionFiles> | null = null;
  #http: HttpRequestScope | null = null;
  #handshake: Handshake = { type: "new" };
  #isExtended = false;

  constructor(peer: Peer, deps: ConnectionHandlerDeps) {
    const { principal, host, sessions, config, resources } = deps;
    const ownerId = quotaOwner(principal);
    this.#peer = peer;
    this.#deps = deps;
    this.memory = resources.openConnection(ownerId);
    this.#httpRequests = resources.httpRequests.perConnection(config.caps.httpRequests.perOwner, ownerId);
    const scope = principal.credential?.scope;
    const requirement = stricterRequirement(
      config.requireSandbox && toSandboxRequirement(config.requireSandbox, null),
      scope?.sandbox ? toSandboxRequirement(scope.sandbox, scope.roots) : null,
    );
    const confinement: StartConfinement = { requirement, limits: scope?.limits };
    this.#v0 = new V0Processes(confined(host.backend, confinement), peer, config, ownerId);
    this.#forwards = new ConnectionForwards({
      service: host.forward,
      peer,
      session: () => this.#session(),
      config,
      resources,
      ownerId,
      clock: host.clock ?? systemClock,
      metrics: host.metrics,
      isSandboxedPeer: host.isSandboxedPeer ?? (() => false),
      console: deps.console,
    });
    this.#methods = {
      initialize: (params) => this.#initialize(params),
      "environment/info": async () => ({
        ...(await host.environment.describe()),
        generation: sessions.generation,
      }),
      "environment/status": async () => ({ status: "ready" }),
      "environmentConfig/read": (params) => host.environment.readConfig(params),
      "capabilityRoots/discoverV1": (params) => discoverRoots(params, host, this.#session()),
      "capabilities/discoverV2": (params) => host.environment.discover(params),
      "http/request": (params, context) => this.#httpRequest(params, context),
      ...this.#v0.methods,
      ...attachMethods({
        session: () => this.#session(),
        findProcess: (handle) => sessions.findProcess(handle, principal, this.#session().isExtended),
        principal,
        shares: sessions.shares,
        screens: resources.screens,
      }),
      ...questionMethods({
        session: () => this.#session(),
        principal,
        questions: sessions.questions,
        hasConsole: () => deps.console() !== null,
      }),
      ...processMethods({
        session: () => this.#session(),
        listAll: () => sessions.listAll(principal),
        sampleUsage: async () => (await host.backend.usage?.()) ?? new Map(),
        config,
        persistenceUnavailableReason: host.backend.persistenceUnavailableReason,
        confinement,
        waits: resources.waits.perConnection(config.caps.waits.perOwner, ownerId),
        acquireRead: () => resources.waits.acquire(ownerId),
      }),
      ...lazyFileMethods(() => {
        this.#files ??= new LazyResource(() => this.#openFiles());
        return this.#files.get();
      }),
      ...this.#forwards.methods,
      ...consoleMethods(deps.console, principal),
      ...accessMethods(deps),
    };
    this.#audited = host.audit
      ? new AuditedCalls({
          log: host.audit,
          actor: () => this.#actor(),
          findProcess: (processId) => this.#findSession()?.findStarted(processId) ?? null,
          findV0Process: (sessionId) => this.#v0.process(sessionId),
        })
      : null;
  }

  /**
   * True if the client requested an extension, also in a rejected `initialize`. Other clients get exactly the responses of
   * the Codex exec-server.
   */
  get isExtended(): boolean {
    return this.#isExtended;
  }

  /** Calls a method. Rejects with a RequestError if the method is not allowed or its handler rejects the request. */
  call<M extends MethodName>(method: M, params: ParamsOf<M>, caller: Caller): Promise<ResultOf<M>> {
    const run = () => this.#call(method, params, caller);
    return this.#audited ? this.#audited.run(method, params, run) : run();
  }

  async #call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    { afterResponse, streamFile }: Caller,
  ): Promise<ResultOf<M>> {
    this.#requireReady(methods[method].family);
    const { principal } = this.#deps;
    if (principal.share) requireShareAccess(principal.share, method, params);
    if (principal.credential?.scope) requireScope(principal.credential.scope, method, params);
    const disconnected = this.#disconnected.signal;
    const reserveResponseBytes = async (bytes: number) => {
      afterResponse(await this.#responseBytes.acquire(bytes, disconnected));
      afterResponse(await this.memory.responseBytes.acquire(bytes, disconnected));
    };
    const chargeResponseBytes = async (bytes: number) => {
      afterResponse(await this.#responseBytes.acquire(bytes, disconnected));
      for (const budget of this.memory.budgets) {
        budget.charge(bytes);
        afterResponse(() => budget.release(bytes));
      }
    };
    return this.#methods[method](params, {
      chargeResponseBytes,
      afterResponse,
      streamFile,
      reserveResponseBytes,
      disconnected,
    });
  }

  /** Handles `initialized`: the client has the response to `initialize`. */
  initialized(): void {
    if (this.#handshake.type === "new") {
      throw new ProtocolError("received `initialized` notification before `initialize`");
    }
    this.#handshake = { ...this.#handshake, type: "ready" };
    this.#handshake.session.ready(this.#handshake.client);
    this.#forwards.ready();
  }

  /** Handles `process/ack`: the client has stored everything up to `seq`. */
  ack(processId: string, seq: number): void {
    if (this.#handshake.type === "new" || !this.#handshake.client.extensions.has("outputAck")) {
      throw new ProtocolError("unexpected notification method: process/ack");
    }
    this.#handshake.session.findStarted(processId)?.acknowledge(seq);
  }

  /** Handles `forward/ack`: the client has processed `bytes` of a forwarded stream. */
  forwardAck(streamId: string, bytes: number): void {
    this.#forwards.ack(streamId, bytes);
  }

  /** Handles the end of the connection: ends v0 processes, detaches the session, closes files and HTTP requests. */
  async close(): Promise<void> {
    this.#disconnected.abort();
    this.#v0.close();
    this.#http?.close();
    this.#forwards.close(this.#findSession());
    if (this.#handshake.type !== "new") this.#handshake.session.detach(this.#handshake.client);
    this.memory[Symbol.dispose]();
    await this.#files?.close((files) => files.close());
  }

  async #initialize(params: ParamsOf<"initialize">): Promise<ResultOf<"initialize">> {
    if (this.#handshake.type !== "new") throw invalidRequest("initialize may only be sent once per connection");
    const { principal, host, sessions } = this.#deps;
    const { enableBinaryBlocks } = this.#peer;
    const granted = EXTENSIONS.filter(
      (extension) =>
        params.extensions?.includes(extension) && (extension !== "binaryBlocks" || enableBinaryBlocks !== undefined),
    );
    this.#isExtended = granted.length > 0;
    const { clientName, resumeSessionId } = params;
    const extensions = new Set<Extension>(granted);
    const client: SessionClient = { peer: this.#peer, extensions, clientName };
    const session =
      resumeSessionId === undefined
        ? sessions.open(principal, client)
        : sessions.resume(resumeSessionId, principal, client, takeoverPolicyOf(params));
    this.#handshake = { type: "initialized", session, client };
    if (extensions.has("binaryBlocks")) enableBinaryBlocks?.();
    const describe = () => (clientName === CODEX_CLIENT_NAME ? host.environment.describe() : host.environment.info());
    return {
      protocolVersion: PROTOCOL_VERSION,
      sessionId: session.id,
      // A guest gets no information about the host.
      environmentInfo: principal.share ? undefined : await describe(),
      extensions: granted,
      attachmentId: session.attachmentId,
      generation: sessions.generation,
    };
  }

  async #httpRequest(params: ParamsOf<"http/request">, context: CallContext): Promise<ResultOf<"http/request">> {
    const { host } = this.#deps;
    this.#http ??= host.http.open((delta) => this.#sendBodyDelta(delta), this.#httpRequests.enter);
    const { bodyBase64, ...rest } = params;
    const admit = (bytes: number) => {
      const release = this.memory.httpBodies.tryAcquire(bytes);
      if (release) context.afterResponse(release);
      return release !== null;
    };
    const { status, headers, body, stream } = await this.#http.request({ ...rest, body: bodyBase64 }, admit);
    if (stream) context.afterResponse(stream);
    return { status, headers, bodyBase64: body };
  }

  async #sendBodyDelta({ delta, ...rest }: HttpBodyDelta): Promise<void> {
    this.#peer.notify({ method: "http/request/bodyDelta", params: { ...rest, deltaBase64: delta } });
    if (!this.#peer.isAboveQueueLimit) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        stop();
        this.#disconnected.signal.removeEventListener("abort", done);
        resolve();
      };
      const stop = this.#peer.onDrain(done);
      this.#disconnected.signal.addEventListener("abort", done, { once: true });
    });
  }

  async #openFiles(): Promise<ConnectionFiles> {
    const session = this.#session();
    const { host, resources, principal } = this.#deps;
    const { sandboxedFiles: sandboxed } = host;
    const ownerId = quotaOwner(principal);
    const roots = principal.credential?.scope?.roots ?? null;
    const files = await host.files();
    return new ConnectionFiles({ files, peer: this.#peer, session, sandboxed, resources, ownerId, roots });
  }

  #actor(): Actor {
    return { principal: this.#deps.principal.id, session: this.#findSession()?.number ?? null };
  }

  /** Returns the session, or null before the handshake. */
  #findSession(): Session | null {
    return this.#handshake.type === "new" ? null : this.#handshake.session;
  }

  #session(): Session {
    const session = this.#findSession();
    if (!session) throw invalidRequest(handshakeErrorText("call initialize", "exec"));
    return session;
  }

  #requireReady(family: Family | null): void {
    if (family === null || this.#handshake.type === "ready") return;
    const step = this.#handshake.type === "new" ? "call initialize" : "send initialized";
    throw invalidRequest(handshakeErrorText(step, family));
  }
}

function takeoverPolicyOf({ takeOver, takeOverFrom }: ParamsOf<"initialize">): TakeoverPolicy {
  if (takeOverFrom !== undefined) return { type: "own", attachmentId: takeOverFrom };
  return { type: takeOver ? "always" : "detached" };
}

function handshakeErrorText(step: "call initialize" | "send initialized", family: Family): string {
  return `client must ${step} before using ${family} methods`;
}
