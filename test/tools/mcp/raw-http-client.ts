import assert from "node:assert/strict";
import { EventSourceParserStream } from "eventsource-parser/stream";

export interface Message {
  id?: number | string;
  method?: string;
  params?: Record<string, unknown>;
  result?: Record<string, unknown>;
  error?: { code: number; message: string };
}

/** The response stream of one request, with the messages before the response. */
export type Answering = AsyncGenerator<Message, void, undefined>;

/**
 * A minimal client of Streamable HTTP: one POST per message, each response on the stream of that POST, and
 * no stream (GET) for other messages of the server, unless `listen` is called.
 */
export class RawHttpClient {
  readonly #url: string;
  readonly #token: string | undefined;
  #session: string | null = null;
  #ids = 0;

  private constructor(url: string, token: string | undefined) {
    this.#url = url;
    this.#token = token;
  }

  static async connect(url: string, token?: string): Promise<RawHttpClient> {
    const client = new RawHttpClient(url, token);
    const clientInfo = { name: "raw", version: "1" };
    const capabilities = { elicitation: { form: {} } };
    const answering = await client.request("initialize", {
      protocolVersion: "2025-11-25",
      capabilities,
      clientInfo,
    });
    assert.ok((await client.answer(answering)).result);
    await client.notify("notifications/initialized");
    return client;
  }

  /** Sends a request. Returns the stream of its response. */
  async request(method: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<Answering> {
    return this.#post({ id: ++this.#ids, method, params }, signal);
  }

  async notify(method: string): Promise<void> {
    for await (const _message of await this.#post({ method }));
  }

  /** Answers a request of the server. */
  async reply(id: Message["id"], result: Record<string, unknown>): Promise<void> {
    assert.ok(id !== undefined);
    for await (const _message of await this.#post({ id, result }));
  }

  /** Returns the next message of a stream that matches `isWanted`. The stream stays open. */
  async next(stream: Answering, isWanted: (message: Message) => boolean): Promise<Message> {
    for (;;) {
      const { value, done } = await stream.next();
      assert.ok(!done, "the stream ended before what was waited for");
      if (isWanted(value)) return value;
    }
  }

  answer(stream: Answering): Promise<Message> {
    return this.next(stream, ({ result, error }) => result !== undefined || error !== undefined);
  }

  question(stream: Answering): Promise<Message> {
    return this.next(stream, ({ method }) => method === "elicitation/create");
  }

  /** Opens the stream for server messages outside of responses. */
  async listen(): Promise<Answering> {
    return messages(await fetch(this.#url, { headers: this.#headers() }));
  }

  async #post(message: Message, signal?: AbortSignal): Promise<Answering> {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const response = await fetch(this.#url, {
      ...{ method: "POST", headers: this.#headers(), body, signal: signal ?? null },
    });
    assert.ok(response.ok, `HTTP status ${response.status}`);
    this.#session ??= response.headers.get("mcp-session-id");
    return messages(response);
  }

  #headers(): Record<string, string> {
    return {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(this.#session === null ? {} : { "mcp-session-id": this.#session }),
      ...(this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` }),
    };
  }
}

async function* messages({ body }: Response): Answering {
  if (!body) return;
  const events = body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  for await (const { data } of events) yield JSON.parse(data);
}
