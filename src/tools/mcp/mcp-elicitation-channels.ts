import type { ElicitRequestFormParams, ElicitResult, Server, ServerContext } from "@modelcontextprotocol/server";
import { abortable } from "../../async/abort.ts";
import { KeyedQueue } from "../../async/keyed-queue.ts";
import { Watch } from "../../async/watch.ts";

/** Sends approval prompts to the user of a client with MCP of 2025. */
export interface ElicitationChannel {
  /** Server of the MCP session that receives the prompt. */
  readonly server: Server;
  /** Aborts when the channel can no longer deliver prompts. */
  readonly closed: AbortSignal;
  /** Rejects when the channel closes or `signal` aborts. */
  elicit(form: ElicitRequestFormParams, signal?: AbortSignal): Promise<ElicitResult>;
  /** Referenced only to keep its signal alive: the signal of a garbage-collected request never aborts. */
  readonly request?: Request | undefined;
}

/** Creates the elicitation channels of all clients. Each client gets one prompt at a time. */
export class ElicitationChannels {
  readonly #prompts = new KeyedQueue<Server>();
  readonly #answerDeadlineMs: number;

  constructor(answerDeadlineMs: number) {
    this.#answerDeadlineMs = answerDeadlineMs;
  }

  /**
   * Returns a channel on the response stream of this request. Over HTTP, the general stream is unreliable: until the client
   * opens it, messages are dropped without an error.
   */
  forCall(server: Server, { mcpReq, http }: Pick<ServerContext, "mcpReq" | "http">): ElicitationChannel {
    const closed = http?.req ? AbortSignal.any([mcpReq.signal, http.req.signal]) : mcpReq.signal;
    return { ...this.#createChannel(server, closed, mcpReq.id), request: http?.req };
  }

  /** Returns a channel independent of requests, for bidirectional connections. */
  forSession(server: Server): ElicitationChannel {
    return this.#createChannel(server, new AbortController().signal, undefined);
  }

  #createChannel(
    server: Server,
    closed: AbortSignal,
    relatedRequestId: number | string | undefined,
  ): ElicitationChannel {
    return {
      server,
      closed,
      elicit: (form, signal) => {
        const until = signal ? AbortSignal.any([closed, signal]) : closed;
        const options = { signal: until, timeout: this.#answerDeadlineMs, relatedRequestId };
        const ask = async () => {
          until.throwIfAborted();
          return server.elicitInput(form, options);
        };
        // An aborted prompt leaves the queue immediately.
        return abortable(this.#prompts.run(server, ask), until);
      },
    };
  }
}

/** The elicitation channels of a task's client, which come and go. A prompt waits until a channel exists. */
export class TaskElicitation {
  readonly #server: Server;
  readonly #channels = new Watch<readonly ElicitationChannel[]>([]);

  /** `server` is the server of the MCP session that made the call. */
  constructor(server: Server) {
    this.#server = server;
  }

  /** Adds a channel and returns a function that removes it. Ignores other MCP sessions, which must not approve this call. */
  add(channel: ElicitationChannel): () => void {
    if (channel.server !== this.#server) return () => undefined;
    const remove = () => this.#channels.set(this.#channels.value.filter((other) => other !== channel));
    this.#channels.set([...this.#channels.value, channel]);
    channel.closed.addEventListener("abort", remove, { once: true });
    return remove;
  }

  /** Sends the prompt to the newest channel, and to the next one if that channel closes before the answer. */
  async elicit(form: ElicitRequestFormParams, signal: AbortSignal): Promise<ElicitResult> {
    const channels = this.#channels.subscribe();
    for (;;) {
      const channel = channels.current().findLast(({ closed }) => !closed.aborted);
      if (!channel) {
        await channels.changed({ signal });
        continue;
      }
      try {
        return await channel.elicit(form, signal);
      } catch (error) {
        if (signal.aborted || !channel.closed.aborted) throw error;
      }
    }
  }
}
