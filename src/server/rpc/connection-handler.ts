import { ByteTurns } from "../../async/byte-semaphore.ts";
import { systemClock } from "../../async/clock.ts";
import { invalidRequest, ProtocolError } from "../../protocol/errors.ts";
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
import { requireShared } from "../auth/share-permissions.ts";
import { ConnectionForwards } from "../forward/forward-methods.ts";
import type { CallContext, Handlers } from "../handlers.ts";
import type { HostServices, HttpRequests } from "../host-services.ts";
import type { Actor, AuditLog } from "../observability/audit-log.ts";
import type { Principal } from "../principal.ts";
import { MAX_QUEUED_BYTES, type ServerConfig } from "../server-config.ts";
import type { SharedRoom } from "../server-resources.ts";
import type { Attachment } from "../session/session-process.ts";
import type { Claim, SessionRegistry } from "../session/session-registry.ts";
import type { Session } from "../session.ts";
import { discoverRoots } from "../walled-capability-roots.ts";
import { auditedMethods } from "./audited-methods.ts";
import { ConnectionFiles, lazyFileMethods } from "./file-methods.ts";
import type { Peer } from "./peer.ts";
import { processMethods } from "./process-methods.ts";
import { V0Processes } from "./v0-methods.ts";

type Handshake =
  | { type: "new" }
  /** `initialize` was answered; exec methods wait for `initialized`. */
  | { type: "initialized" | "ready"; session: Session; attachment: Attachment };

/** The typed side of one connection: handshake, gates, and one function a method. Knows no JSON. */
export class ConnectionHandler {
  readonly #peer: Peer;
  readonly #principal: Principal;
  readonly #host: HostServices;
  readonly #sessions: SessionRegistry;
  readonly #v0: V0Processes;
  readonly #forwards: ConnectionForwards;
  readonly #methods: Handlers;
  readonly #room: SharedRoom;
  /** Of the server's answers this connection may hold as much as may be queued for it; a larger one goes alone. */
  readonly #answers = new ByteTurns(MAX_QUEUED_BYTES);
  readonly #httpRequests: ReturnType<SharedRoom["httpRequests"]["ofConnection"]>;
  readonly #gone = new AbortController();
  #files: Promise<ConnectionFiles> | null = null;
  #http: HttpRequests | null = null;
  #handshake: Handshake = { type: "new" };

  constructor(
    peer: Peer,
    principal: Principal,
    host: HostServices,
    sessions: SessionRegistry,
    config: ServerConfig,
    room: SharedRoom,
  ) {
    this.#room = room;
    this.#httpRequests = room.httpRequests.ofConnection(config.caps.httpRequests.each);
    this.#peer = peer;
    this.#principal = principal;
    this.#host = host;
    this.#sessions = sessions;
    this.#v0 = new V0Processes(host.backend, peer, config);
    this.#forwards = new ConnectionForwards({
      service: host.forward,
      peer,
      session: () => this.#session(),
      config,
      room,
      clock: host.clock ?? systemClock,
      figures: host.figures,
      audit: host.audit && ((event) => host.audit?.write(this.#actor(), event)),
      isWalledPeer: host.isWalledPeer ?? (() => false),
    });
    const handlers: Handlers = {
      initialize: (params) => this.#initialize(params),
      "environment/info": async () => ({
        ...(await host.environment.describe()),
        generation: this.#session().isExtended ? sessions.generation : undefined,
      }),
      "environment/status": async () => ({ status: "ready" }),
      "environmentConfig/read": (params) => host.environment.readConfig(params),
      "capabilityRoots/discoverV1": (params) => discoverRoots(params, host, this.#session()),
      "capabilities/discoverV2": (params) => host.environment.discover(params),
      "http/request": (params, context) => this.#httpRequest(params, context),
      ...this.#v0.methods,
      ...processMethods({
        session: () => this.#session(),
        listAll: () => sessions.listAll(principal),
        processOf: (handle) => sessions.processOf(handle, principal, this.#session().isExtended),
        share: (...wanted) => sessions.shares.issue(...wanted),
        config,
        whyNotKept: host.backend.whyNotKept,
        waits: room.waits.ofConnection(config.caps.waits.each),
      }),
      ...lazyFileMethods(() => this.#openFiles()),
      ...this.#forwards.methods,
    };
    this.#methods = host.audit ? this.#audited(handlers, host.audit) : handlers;
  }

  #audited(handlers: Handlers, log: AuditLog): Handlers {
    return auditedMethods(handlers, {
      log,
      principal: this.#principal.id,
      session: () => (this.#handshake.type === "new" ? null : this.#handshake.session),
      v0Process: (sessionId) => this.#v0.process(sessionId),
    });
  }

  /** Rejects with a RequestError for what is refused. */
  async call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    afterAnswer: (task: () => void) => void,
  ): Promise<ResultOf<M>> {
    this.#requireReady(methods[method].family);
    if (this.#principal.share) requireShared(this.#principal.share, method, params);
    const gone = this.#gone.signal;
    const admit = async (bytes: number) => {
      afterAnswer(await this.#answers.take(bytes, gone));
      afterAnswer(await this.#room.answers.take(bytes, gone));
    };
    return this.#methods[method](params, { afterAnswer, admit, gone });
  }

  /** The client says it has the answer to `initialize`. */
  initialized(): void {
    if (this.#handshake.type === "new") {
      throw new ProtocolError("received `initialized` notification before `initialize`");
    }
    this.#handshake = { ...this.#handshake, type: "ready" };
    this.#handshake.session.ready(this.#handshake.attachment);
    this.#forwards.ready();
  }

  /** The client has everything up to `seq` of this process. */
  ack(processId: string, seq: number): void {
    if (this.#handshake.type === "new" || !this.#handshake.attachment.extensions.has("outputAck")) {
      throw new ProtocolError("unexpected notification method: process/ack");
    }
    this.#handshake.session.confirm(processId, seq);
  }

  /** The client has dealt with so many bytes of a forwarded stream. */
  forwardAck(streamId: string, bytes: number): void {
    this.#forwards.ack(streamId, bytes);
  }

  /** The connection is gone: v0 processes end, the session waits to be resumed, files and requests are closed. */
  async close(): Promise<void> {
    this.#gone.abort();
    this.#v0.close();
    this.#http?.close();
    this.#forwards.close(this.#handshake.type === "new" ? null : this.#handshake.session);
    if (this.#handshake.type !== "new") this.#handshake.session.detach(this.#handshake.attachment);
    await (await this.#files)?.close();
  }

  async #initialize(params: ParamsOf<"initialize">): Promise<ResultOf<"initialize">> {
    if (this.#handshake.type !== "new")
      throw invalidRequest("initialize may only be sent once per connection");
    const granted = EXTENSIONS.filter((extension) => params.extensions?.includes(extension));
    const { clientName } = params;
    const attachment: Attachment = { peer: this.#peer, extensions: new Set<Extension>(granted), clientName };
    const session =
      params.resumeSessionId === undefined
        ? this.#sessions.open(this.#principal, attachment)
        : this.#sessions.resume(params.resumeSessionId, this.#principal, attachment, claimOf(params));
    this.#handshake = { type: "initialized", session, attachment };
    return {
      protocolVersion: PROTOCOL_VERSION,
      sessionId: session.id,
      // Whoever came for one process learns nothing of the host around it.
      environmentInfo: this.#principal.share ? undefined : this.#host.environment.info(),
      extensions: granted,
      // Clients that asked for nothing get exactly the answer they know.
      attachmentId: granted.length > 0 ? session.attachmentId : undefined,
      generation: granted.length > 0 ? this.#sessions.generation : undefined,
    };
  }

  async #httpRequest(
    params: ParamsOf<"http/request">,
    context: CallContext,
  ): Promise<ResultOf<"http/request">> {
    this.#http ??= this.#host.http.open((delta) => this.#tellBody(delta), this.#httpRequests.enter);
    const { bodyBase64, ...rest } = params;
    const admit = (bytes: number) => {
      const release = this.#room.httpBodies.tryTake(bytes);
      if (release) context.afterAnswer(release);
      return release !== null;
    };
    const { status, headers, body, stream } = await this.#http.request({ ...rest, body: bodyBase64 }, admit);
    if (stream) context.afterAnswer(stream);
    return { status, headers, bodyBase64: body };
  }

  async #tellBody({
    delta,
    ...rest
  }: Parameters<Parameters<HostServices["http"]["open"]>[0]>[0]): Promise<void> {
    this.#peer.notify({ method: "http/request/bodyDelta", params: { ...rest, deltaBase64: delta } });
    if (!this.#peer.congested) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        stop();
        this.#gone.signal.removeEventListener("abort", done);
        resolve();
      };
      const stop = this.#peer.onDrain(done);
      this.#gone.signal.addEventListener("abort", done, { once: true });
    });
  }

  #openFiles(): Promise<ConnectionFiles> {
    const session = this.#session();
    this.#files ??= this.#host.files().then(
      (files) =>
        new ConnectionFiles({
          files,
          peer: this.#peer,
          session,
          walled: this.#host.walledFiles,
          room: this.#room,
        }),
      (error: unknown) => {
        // A host without files now may have them for the next who asks.
        this.#files = null;
        throw error;
      },
    );
    return this.#files;
  }

  #actor(): Actor {
    return {
      principal: this.#principal.id,
      session: this.#handshake.type === "new" ? 0 : this.#handshake.session.number,
    };
  }

  #session(): Session {
    if (this.#handshake.type === "new") throw invalidRequest(gateText("call initialize", "exec"));
    return this.#handshake.session;
  }

  #requireReady(family: Family | null): void {
    if (family === null || this.#handshake.type === "ready") return;
    const step = this.#handshake.type === "new" ? "call initialize" : "send initialized";
    throw invalidRequest(gateText(step, family));
  }
}

function claimOf({ takeOver, takeOverFrom }: ParamsOf<"initialize">): Claim {
  if (takeOverFrom !== undefined) return { type: "own", attachmentId: takeOverFrom };
  return { type: takeOver ? "always" : "detached" };
}

function gateText(step: "call initialize" | "send initialized", family: Family): string {
  return `client must ${step} before using ${family} methods`;
}
