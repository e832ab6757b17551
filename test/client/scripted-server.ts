import {
  type ConnectionState,
  ExecServerClient,
  type ExecServerClientOptions,
} from "../../src/client/exec-server-client.ts";
import type { Connection } from "../../src/connection/connection.ts";
import type { Message } from "../../src/protocol/envelope.ts";
import { RequestError, toWireError } from "../../src/protocol/errors.ts";
import { encodeError, encodeNotification, encodeResponse } from "../../src/protocol/message-text.ts";
import { KeepAliveClock } from "../support/keep-alive-clock.ts";
import { memoryConnectionPair } from "../support/servers/memory-connection.ts";

type Answer = (params: Record<string, unknown>, peer: ScriptedConnection) => unknown;

/** Send no response: the test responds later, or never. */
export const NO_ANSWER = Symbol("no answer");

/** Server side of one connection. */
export class ScriptedConnection {
  readonly #connection: Connection;
  readonly messages: Message[] = [];

  constructor(connection: Connection, server: ScriptedServer) {
    this.#connection = connection;
    connection.open((event) => {
      if (event.type !== "message") return;
      this.messages.push(event.message);
      server.received.push(event.message);
      server.onMessage();
      if (event.message.type === "request") this.#answer(event.message, server);
    });
  }

  notify(method: string, params: unknown): void {
    this.#connection.send(encodeNotification(method, params));
  }

  respond(id: string | number | bigint, result: unknown): void {
    this.#connection.send(encodeResponse(id, result));
  }

  /** Breaks the connection. */
  cut(reason?: string): void {
    this.#connection.close(reason);
  }

  #answer(request: Extract<Message, { type: "request" }>, server: ScriptedServer): void {
    const { id, method } = request;
    // The test's client sent these params.
    const params = (request.params ?? {}) as Record<string, unknown>;
    const answer = server.answers[method];
    try {
      const result = answer ? answer(params, this) : unknownMethod(method);
      if (result !== NO_ANSWER) this.#connection.send(encodeResponse(id, result));
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.#connection.send(encodeError(id, toWireError(error, true)));
    }
  }
}

/** A server that sends only scripted messages, as JSON text in memory. */
export class ScriptedServer {
  constructor(answers: Record<string, Answer> = {}) {
    Object.assign(this.answers, answers);
  }

  /** All messages received, in order. */
  readonly received: Message[] = [];
  readonly connections: ScriptedConnection[] = [];
  answers: Record<string, Answer> = {
    initialize: () => ({
      sessionId: "S",
      environmentInfo: null,
      extensions: ["started", "failed", "outputAck"],
    }),
    "process/start": ({ processId }) => ({ processId, sandboxType: "none" }),
    "environment/status": () => ({ status: "ready" }),
  };
  onMessage: () => void = () => undefined;
  /** Throws like a refused connection. */
  refuse: (() => Error) | null = null;

  /** Opens a connection; pass it to the client. */
  readonly open = (): Connection => {
    if (this.refuse) throw this.refuse();
    const [client, server] = memoryConnectionPair();
    this.connections.push(new ScriptedConnection(server, this));
    return client;
  };

  get current(): ScriptedConnection {
    const last = this.connections.at(-1);
    if (!last) throw new Error("nobody has connected yet");
    return last;
  }

  /** Params of all requests of one method so far. */
  calls(method: string): Record<string, unknown>[] {
    return this.received.flatMap((message) =>
      message.type === "request" && message.method === method ? [message.params as Record<string, unknown>] : [],
    );
  }

  notifications(method: string): unknown[] {
    return this.received.flatMap((message) =>
      message.type === "notification" && message.method === method ? [message.params] : [],
    );
  }

  /** Resolves when the condition holds, checked after every message. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const before = this.onMessage;
      this.onMessage = () => {
        before();
        resolve();
      };
      await promise;
      this.onMessage = before;
    }
  }
}

interface ScriptedClient {
  server: ScriptedServer;
  client: ExecServerClient;
  clock: KeepAliveClock;
  states: ConnectionState[];
}

/** Connects a client to a scripted server, on a manual clock. */
export async function connectScripted(
  options: ExecServerClientOptions = {},
  server = new ScriptedServer(),
): Promise<ScriptedClient> {
  const clock = new KeepAliveClock();
  const states: ConnectionState[] = [];
  const client = await ExecServerClient.connect(server.open, {
    clock,
    onConnectionState: (state) => states.push(state),
    ...options,
  });
  return { server, client, clock, states };
}

function unknownMethod(method: string): never {
  throw new RequestError(-32601, `exec-server stub does not implement \`${method}\` yet`);
}
