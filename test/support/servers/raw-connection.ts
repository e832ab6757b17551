/**
 * A client that speaks raw JSON text over any transport. It sends texts unchanged, stores every message in order, and
 * lets a test wait for a message.
 */

import assert from "node:assert/strict";
import { connect as connectTcp, type Socket } from "node:net";
import { WebSocket } from "ws";
import type { Connection } from "../../../src/connection/connection.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import type { Message } from "../../../src/protocol/envelope.ts";
import type { WireError } from "../../../src/protocol/errors.ts";
import { encodeError, encodeNotification, encodeRequest, encodeResponse } from "../../../src/protocol/message-text.ts";
import { WAIT_TIMEOUT_MS } from "../system/until.ts";
import { memoryConnectionPair } from "./memory-connection.ts";

/** One message, unparsed. */
export interface WireMessage {
  id?: string | number | bigint;
  method?: string;
  params?: Record<string, unknown>;
  result?: Record<string, unknown>;
  error?: WireError;
}

/** A transport for the text of messages. */
export interface Wire {
  send(text: string): void;
  /** Called once, before anything else. */
  open(onText: (text: string) => void, onEnd: (code: number | null) => void): void;
  /** Closes the connection with the close handshake of the transport, if it has one. */
  close(): void;
  /** Cuts the connection without a close handshake. */
  cut(): void;
  /** Stops and resumes reading from the server. */
  pause(): void;
  resume(): void;
}

/** A client whose messages a test sees unparsed and in order. */
export class WireClient implements AsyncDisposable {
  readonly messages: WireMessage[] = [];
  readonly texts: string[] = [];
  readonly #wire: Wire;
  readonly #waiters = new Set<() => void>();
  readonly #outputs = new Map<string, Buffer[]>();
  #nextId = 1;
  #ended = false;
  #endCode: number | null = null;
  sessionId = "";

  constructor(wire: Wire) {
    this.#wire = wire;
    wire.open(
      (text) => this.#received(text),
      (code) => {
        this.#ended = true;
        this.#endCode = code;
        this.#wake();
      },
    );
  }

  /** `initialize` and `initialized`. */
  async handshake(params: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const result = await this.call("initialize", { clientName: "test", ...params });
    this.notify("initialized", {});
    this.sessionId = String(result.sessionId);
    return result;
  }

  raw(text: string): void {
    this.#wire.send(text);
  }

  notify(method: string, params?: unknown): void {
    this.raw(JSON.stringify({ method, params }));
  }

  /** Sends a request. Resolves to its response, which may be an error. */
  request(method: string, params?: unknown): Promise<WireMessage> {
    const id = this.#nextId++;
    this.raw(JSON.stringify({ id, method, params }));
    return this.answer(id);
  }

  answer(id: string | number | bigint): Promise<WireMessage> {
    return this.waitFor(`the answer to ${id}`, (message) => message.method === undefined && message.id === id);
  }

  /** Sends a request that must succeed. Resolves to its result. */
  async call(method: string, params?: unknown): Promise<Record<string, unknown>> {
    const { result, error } = await this.request(method, params);
    assert.ok(result, `${method} failed: ${JSON.stringify(error)}`);
    return result;
  }

  /** Sends a request that must fail. Resolves to its error. */
  async refused(method: string, params?: unknown): Promise<WireError> {
    const { result, error } = await this.request(method, params);
    assert.ok(error, `${method} succeeded: ${JSON.stringify(result)}`);
    return error;
  }

  start(processId: string, argv: string[], more: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    return this.call("process/start", startParams(processId, argv, more));
  }

  async write(processId: string, text: string, writeId?: string): Promise<unknown> {
    const chunk = Buffer.from(text).toString("base64");
    return (await this.call("process/write", { processId, chunk, writeId })).status;
  }

  /** Resolves with the first past or future message that `wanted` accepts. */
  async waitFor(what: string, wanted: (message: WireMessage) => boolean): Promise<WireMessage> {
    let seen = 0;
    let found: WireMessage | undefined;
    await this.until(what, () => {
      while (seen < this.messages.length && !found) {
        const message = this.messages[seen++];
        if (message && wanted(message)) found = message;
      }
      return found !== undefined;
    });
    assert.ok(found);
    return found;
  }

  /** Waits until `condition` holds. Checks it after every message and periodically. */
  async until(what: string, condition: () => boolean): Promise<void> {
    const deadline = Date.now() + WAIT_TIMEOUT_MS;
    while (!condition()) {
      if (this.#ended) assert.fail(`the connection ended while waiting for ${what}; last: ${this.#lastText()}`);
      const left = deadline - Date.now();
      if (left <= 0) assert.fail(`waited ${WAIT_TIMEOUT_MS} ms for ${what}; last: ${this.#lastText()}`);
      // The condition may also depend on state outside of this connection.
      await this.#change(Math.min(left, 20));
    }
  }

  notification(method: string, processId: string): Promise<WireMessage> {
    return this.waitFor(
      `${method} of ${processId}`,
      (message) =>
        message.method === method &&
        (message.params?.processId === processId || message.params?.sessionId === processId),
    );
  }

  /** The params of every notification about one process, in order. */
  notificationsOf(processId: string): { method: string; params: Record<string, unknown> }[] {
    return this.messages.flatMap(({ method, params }) =>
      method && params && (params.processId === processId || params.sessionId === processId)
        ? [{ method, params }]
        : [],
    );
  }

  /** Returns the output of a process so far, as text. */
  output(processId: string): string {
    return this.outputBytes(processId).toString("utf8");
  }

  outputBytes(processId: string): Buffer {
    const whole = Buffer.concat(this.#outputs.get(processId) ?? []);
    this.#outputs.set(processId, [whole]);
    return whole;
  }

  /** Waits until the output of a process contains this text. */
  async outputContains(processId: string, text: string): Promise<void> {
    await this.until(`\`${text}\` from ${processId}`, () => this.output(processId).includes(text));
  }

  /** Waits for the last event of a process. Returns its output and its exit status. */
  async finished(processId: string): Promise<{ output: string; exitCode: unknown; exited: Record<string, unknown> }> {
    await this.notification("process/closed", processId);
    const exited = (await this.notification("process/exited", processId)).params ?? {};
    return { output: this.output(processId), exitCode: exited.exitCode, exited };
  }

  /** Waits for the end of the connection. Returns the WebSocket's close code, or null without one. */
  async ended(): Promise<number | null> {
    const deadline = Date.now() + WAIT_TIMEOUT_MS;
    while (!this.#ended) {
      const left = deadline - Date.now();
      if (left <= 0) assert.fail(`the connection did not end; last: ${this.#lastText()}`);
      await this.#change(left);
    }
    return this.#endCode;
  }

  get isEnded(): boolean {
    return this.#ended;
  }

  /** Makes a round trip, after which the server has processed all earlier messages. */
  async roundTrip(): Promise<void> {
    await this.request("environment/status");
  }

  pause(): void {
    this.#wire.pause();
  }

  resume(): void {
    this.#wire.resume();
  }

  cut(): void {
    this.#wire.cut();
  }

  async close(): Promise<void> {
    this.#wire.close();
    await this.ended();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #received(text: string): void {
    this.texts.push(text);
    const message: WireMessage = parseWire(text);
    this.messages.push(message);
    if (message.method === "process/output" || message.method === "command/exec/outputDelta") {
      const id = String(message.params?.processId ?? message.params?.sessionId);
      const chunks = this.#outputs.get(id) ?? [];
      chunks.push(Buffer.from(String(message.params?.chunk), "base64"));
      this.#outputs.set(id, chunks);
    }
    this.#wake();
  }

  #lastText(): string {
    return this.texts.slice(-3).join("\n").slice(0, 600) || "nothing";
  }

  #wake(): void {
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const wake of waiters) wake();
  }

  #change(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#waiters.delete(wake);
        resolve();
      }, timeoutMs);
      const wake = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#waiters.add(wake);
    });
  }
}

export function startParams(processId: string, argv: string[], more: Record<string, unknown> = {}) {
  return { processId, argv, cwd: "file:///tmp", env: { PATH: "/usr/bin:/bin" }, tty: false, ...more };
}

/** A shell command as argv. */
export const sh = (script: string) => ["/bin/sh", "-c", script];

/** Parses ids beyond JavaScript's safe integers as bigints, so that a test sees them unchanged. */
function parseWire(text: string): WireMessage {
  return JSON.parse(text, (key, value: unknown, context?: { source?: string }) =>
    key === "id" && typeof value === "number" && !Number.isSafeInteger(value) && context?.source
      ? BigInt(context.source)
      : value,
  );
}

/** Creates an in-memory connection; `accept` receives the server's end. */
export function memoryWire(accept: (connection: Connection) => unknown): Wire {
  const [ours, theirs] = memoryConnectionPair();
  accept(theirs);
  return {
    send: (text) => ours.send(text),
    open: (onText, onEnd) =>
      ours.open((event) => {
        if (event.type === "message") onText(textOf(event.message));
        if (event.type === "malformed") throw new Error(`the server sent no message: ${event.reason}`);
        if (event.type === "disconnected") onEnd(null);
      }),
    close: () => ours.close(),
    cut: () => ours.close(),
    pause: () => ours.pause(),
    resume: () => ours.resume(),
  };
}

/** Returns the JSON text of a message that a connection has already parsed. */
function textOf(message: Message): string {
  switch (message.type) {
    case "request":
      return encodeRequest(message.id, message.method, inText(message.params));
    case "notification":
      return encodeNotification(message.method, inText(message.params));
    case "response":
      return encodeResponse(message.id, inText(message.result));
    case "error":
      return encodeError(message.id, message.error);
  }
}

/** Encodes a chunk that the parser decoded to bytes. */
function inText(value: unknown): unknown {
  if (typeof value !== "object" || value === null || !("chunk" in value)) return value;
  return value.chunk instanceof Uint8Array ? { ...value, chunk: encodeBase64(value.chunk) } : value;
}

/** Opens a WebSocket to `ws://HOST:PORT` or `unix:///PATH`. */
export async function webSocketWire(
  url: string,
  headers: Record<string, string> = {},
  protocols: string[] = [],
): Promise<Wire> {
  const target = url.startsWith("unix://") ? `ws+unix://${url.slice("unix://".length)}:/` : url;
  const socket = new WebSocket(target, protocols, { headers, maxPayload: 0, perMessageDeflate: false });
  const early: string[] = [];
  let onText = (text: string): void => void early.push(text);
  let onEnd: (code: number | null) => void = () => undefined;
  socket.on("message", (data) => onText(String(data)));
  await new Promise<void>((resolve, reject) => {
    socket.on("open", resolve);
    socket.on("error", reject);
  });
  socket.on("error", () => undefined);
  socket.on("close", (code) => onEnd(code));
  return {
    send: (text) => socket.send(text),
    open: (text, end) => {
      onText = text;
      onEnd = end;
      for (const one of early) text(one);
    },
    close: () => socket.close(),
    cut: () => socket.terminate(),
    pause: () => socket.pause(),
    resume: () => socket.resume(),
  };
}

/** Creates a connection with one message per line over two streams, such as the stdout and stdin of a child. */
export function lineWire(
  output: NodeJS.ReadableStream,
  input: NodeJS.WritableStream,
  ended: Promise<number | null>,
): Wire {
  return {
    send: (text) => void input.write(`${text}\n`),
    open: (onText, onEnd) => {
      let partial = "";
      output.setEncoding("utf8");
      output.on("data", (chunk: string) => {
        const lines = (partial + chunk).split("\n");
        partial = lines.pop() ?? "";
        for (const line of lines) onText(line);
      });
      void ended.then(onEnd);
    },
    close: () => void input.end(),
    cut: () => void input.end(),
    pause: () => void output.pause(),
    resume: () => void output.resume(),
  };
}

/** Opens a TCP connection over which a test sends raw bytes. */
export async function rawTcp(url: string): Promise<{ socket: Socket; received: () => string; closed: Promise<void> }> {
  const { port, hostname } = new URL(url);
  const socket = connectTcp(Number(port), hostname);
  let text = "";
  socket.setEncoding("latin1");
  socket.on("data", (chunk: string) => {
    text += chunk;
  });
  socket.on("error", () => undefined);
  const closed = new Promise<void>((resolve) => socket.on("close", () => resolve()));
  await new Promise<void>((resolve, reject) => {
    socket.on("connect", resolve);
    socket.once("error", reject);
  });
  return { socket, received: () => text, closed };
}
