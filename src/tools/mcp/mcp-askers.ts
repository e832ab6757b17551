import type {
  ElicitRequestFormParams,
  ElicitResult,
  Server,
  ServerContext,
} from "@modelcontextprotocol/server";
import { abortable } from "../../async/abort.ts";
import { Lanes } from "../../async/keyed-queue.ts";
import { Watch } from "../../async/watch.ts";

/** A way to put a question to the user of a client of 2025. */
export interface Asker {
  /** Aborted when nothing that is sent this way can arrive any more. */
  readonly gone: AbortSignal;
  /** Rejects when it is gone, or when `signal` aborts. */
  elicit(form: ElicitRequestFormParams, signal?: AbortSignal): Promise<ElicitResult>;
  /** Held for its signal: that of a request that was collected as garbage never aborts. */
  readonly request?: Request | undefined;
}

/** Makes the askers of many clients. Each client gets one question at a time, whatever the others do. */
export class AskerSource {
  readonly #turns = new Lanes<Server>();
  readonly #answerDeadlineMs: number;

  constructor(answerDeadlineMs: number) {
    this.#answerDeadlineMs = answerDeadlineMs;
  }

  /**
   * Asks on the stream that answers this request. The stream for everything else is not good enough over HTTP: a client may
   * not have opened it yet, or never does, and what is sent meanwhile is dropped without an error.
   */
  during(server: Server, { mcpReq, http }: Pick<ServerContext, "mcpReq" | "http">): Asker {
    const gone = http?.req ? AbortSignal.any([mcpReq.signal, http.req.signal]) : mcpReq.signal;
    return { ...this.#asker(server, gone, mcpReq.id), request: http?.req };
  }

  /** Asks outside of any request, for connections that always carry both directions. */
  anytime(server: Server): Asker {
    return this.#asker(server, new AbortController().signal, undefined);
  }

  #asker(server: Server, gone: AbortSignal, relatedRequestId: number | string | undefined): Asker {
    return {
      gone,
      elicit: (form, signal) => {
        const until = signal ? AbortSignal.any([gone, signal]) : gone;
        const options = { signal: until, timeout: this.#answerDeadlineMs, relatedRequestId };
        const ask = async () => {
          until.throwIfAborted();
          return server.elicitInput(form, options);
        };
        // What no longer wants to ask leaves the queue at once.
        return abortable(this.#turns.run(server, ask), until);
      },
    };
  }
}

/** The ways to ask the client of a task, as they come and go: a question waits until there is one. */
export class TaskAskers {
  readonly #known = new Watch<readonly Asker[]>([]);

  /** Returns how to take it away again; one that is gone goes by itself. */
  add(asker: Asker): () => void {
    const remove = () => this.#known.set(this.#known.value.filter((other) => other !== asker));
    this.#known.set([...this.#known.value, asker]);
    asker.gone.addEventListener("abort", remove, { once: true });
    return remove;
  }

  /** Asks the newest; when it goes before the answer has come, the next one. */
  async elicit(form: ElicitRequestFormParams, signal: AbortSignal): Promise<ElicitResult> {
    const known = this.#known.subscribe();
    for (;;) {
      const asker = known.current().findLast(({ gone }) => !gone.aborted);
      if (!asker) {
        await known.changed({ signal });
        continue;
      }
      try {
        return await asker.elicit(form, signal);
      } catch (error) {
        if (signal.aborted || !asker.gone.aborted) throw error;
      }
    }
  }
}
