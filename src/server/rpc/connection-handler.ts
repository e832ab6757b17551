import { ByteSemaphore } from "../../async/byte-semaphore.ts";
import { systemClock } from "../../async/clock.ts";
import { invalidRequest, ProtocolError } from "../../protocol/errors.ts";
import type { HttpBodyDelta } from "../../protocol/http-schemas.ts";
import {
  EXTENSIONS,
  type Extension,
  type Family,
  type MethodName,
  methods,
  type ParamsOf,
  PROTOCOL_VERSION,
  type ResultOf,
} from "../../protocol/methods.ts";
import type { Principal } from "../auth/principal.ts";
import { requireShareAccess } from "../auth/share-permissions.ts";
import { ConnectionForwards } from "../forward/forward-methods.ts";
import type { HostServices, HttpRequestScope } from "../host-services.ts";
import type { Actor } from "../observability/audit-log.ts";
import { MAX_QUEUED_BYTES, type ServerConfig } from "../server-config.ts";
import type { ServerResources } from "../server-resources.ts";
import type { Session } from "../session/session.ts";
import type { SessionClient } from "../session/session-process.ts";
import type { SessionRegistry, TakeoverPolicy } from "../session/session-registry.ts";
import { attachMethods } from "./attach-methods.ts";
import { withAudit } from "./audited-methods.ts";
import { ConnectionFiles, lazyFileMethods } from "./file-methods.ts";
import type { CallContext, Handlers } from "./handler-types.ts";
import type { Peer } from "./peer.ts";
import { processMethods } from "./process-methods.ts";
import { discoverRoots } from "./sandboxed-capability-roots.ts";
import { V0Processes } from "./v0-methods.ts";

type Handshake =
  | { type: "new" }
  /** The server has sent the response to `initialize`. Other methods need the `initialized` notification first. */
  | { type: "initialized" | "ready"; session: Session; attachment: SessionClient };

export interface ConnectionHandlerDeps {
  /** Authenticated principal of the connection. */
  principal: Principal;
  host: HostServices;
  sessions: SessionRegistry;
  config: ServerConfig;
  resources: ServerResources;
}

/** The typed side of one connection: handshake, access checks, and one handler per method. Independent of JSON. */
export class ConnectionHandler {
  readonly #peer: Peer;
  readonly #deps: ConnectionHandlerDeps;
  readonly #v0: V0Processes;
  readonly #forwards: ConnectionForwards;
  readonly #methods: Handlers;
  /** Limits the response bytes of this connection to the send queue limit. A larger response is sent alone. */
  readonly #responseBytes = new ByteSemaphore(MAX_QUEUED_BYTES);
  readonly #httpRequests: ReturnType<ServerResources["httpRequests"]["perConnection"]>;
  readonly #disconnected = new AbortController();
  #files: Promise<ConnectionFiles> | null = null;
  #http: HttpRequestScope | null = null;
  #handshake: Handshake = { type: "new" };
  #isExtended = false;

  constructor(peer: Peer, deps: ConnectionHandlerDeps) {
    const { principal, host, sessions, config, resources } = deps;
    this.#peer = peer;
    this.#deps = deps;
    this.#httpRequests = resources.httpRequests.perConnection(config.caps.httpRequests.perOwner);
    this.#v0 = new V0Processes(host.backend, peer, config);
    this.#forwards = new ConnectionForwards({
      service: host.forward,
      peer,
      session: () => this.#session(),
      config,
      resources,
      clock: host.clock ?? systemClock,
      metrics: host.metrics,
      audit: host.audit && ((event) => host.audit?.write(this.#actor(), event)),
      isSandboxedPeer: host.isSandboxedPeer ?? (() => false),
    });
    const handlers: Handlers = {
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
        share: (...request) => sessions.shares.issue(...request),
      }),
      ...processMethods({
        session: () => this.#session(),
        listAll: () => sessions.listAll(principal),
        config,
        persistenceUnavailableReason: host.backend.persistenceUnavailableReason,
        waits: resources.waits.perConnection(config.caps.waits.perOwner),
      }),
      ...lazyFileMethods(() => this.#openFiles()),
      ...this.#forwards.methods,
    };
    this.#methods = host.audit
      ? withAudit(handlers, {
          log: host.audit,
          actor: () => this.#actor(),
          findProcess: (processId) => this.#findSession()?.findStarted(processId) ?? null,
          findV0Process: (sessionId) => this.#v0.process(sessionId),
        })
      : handlers;
  }

  /**
   * True if the client requested an extension, also in a rejected `initialize`. Other clients get exactly the responses of
   * the Codex exec-server.
   */
  get isExtended(): boolean {
    return this.#isExtended;
  }

  /** Calls a method. Rejects with a RequestError if the method is not allowed or its handler rejects the request. */
  async call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    afterResponse: (task: () => void) => void,
  ): Promise<ResultOf<M>> {
    this.#requireReady(methods[method].family);
    const { principal, resources } = this.#deps;
    if (principal.share) requireShareAccess(principal.share, method, params);
    const disconnected = this.#disconnected.signal;
    const reserveResponseBytes = async (bytes: number) => {
      afterResponse(await this.#responseBytes.acquire(bytes, disconnected));
      afterResponse(await resources.responseBytes.acquire(bytes, disconnected));
    };
    return this.#methods[method](params, { afterResponse, reserveResponseBytes, disconnected });
  }

  /** Handles `initialized`: the client has the response to `initialize`. */
  initialized(): void {
    if (this.#handshake.type === "new") {
      throw new ProtocolError("received `initialized` notification before `initialize`");
    }
    this.#handshake = { ...this.#handshake, type: "ready" };
    this.#handshake.session.ready(this.#handshake.attachment);
    this.#forwards.ready();
  }

  /** Handles `process/ack`: the client has stored everything up to `seq`. */
  ack(processId: string, seq: number): void {
    if (this.#handshake.type === "new" || !this.#handshake.attachment.extensions.has("outputAck")) {
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
    if (this.#handshake.type !== "new") this.#handshake.session.detach(this.#handshake.attachment);
    await (await this.#files)?.close();
  }

  async #initialize(params: ParamsOf<"initialize">): Promise<ResultOf<"initialize">> {
    if (this.#handshake.type !== "new") throw invalidRequest("initialize may only be sent once per connection");
    const { principal, host, sessions } = this.#deps;
    const granted = EXTENSIONS.filter((extension) => params.extensions?.includes(extension));
    this.#isExtended = granted.length > 0;
    const { clientName, resumeSessionId } = params;
    const extensions = new Set<Extension>(granted);
    const attachment: SessionClient = { peer: this.#peer, extensions, clientName };
    const session =
      resumeSessionId === undefined
        ? sessions.open(principal, attachment)
        : sessions.resume(resumeSessionId, principal, attachment, takeoverPolicyOf(params));
    this.#handshake = { type: "initialized", session, attachment };
    return {
      protocolVersion: PROTOCOL_VERSION,
      sessionId: session.id,
      // A guest gets no information about the host.
      environmentInfo: principal.share ? undefined : host.environment.info(),
      extensions: granted,
      attachmentId: session.attachmentId,
      generation: sessions.generation,
    };
  }

  async #httpRequest(params: ParamsOf<"http/request">, context: CallContext): Promise<ResultOf<"http/request">> {
    const { host, resources } = this.#deps;
    this.#http ??= host.http.open((delta) => this.#sendBodyDelta(delta), this.#httpRequests.enter);
    const { bodyBase64, ...rest } = params;
    const admit = (bytes: number) => {
      const release = resources.httpBodies.tryAcquire(bytes);
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

  #openFiles(): Promise<ConnectionFiles> {
    const session = this.#session();
    const { host, resources } = this.#deps;
    const { sandboxedFiles: sandboxed } = host;
    this.#files ??= host.files().then(
      (files) => new ConnectionFiles({ files, peer: this.#peer, session, sandboxed, resources }),
      (error: unknown) => {
        // The next request may succeed.
        this.#files = null;
        throw error;
      },
    );
    return this.#files;
  }

  #actor(): Actor {
    return { principal: this.#deps.principal.id, session: this.#findSession()?.number ?? 0 };
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
