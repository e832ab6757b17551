import type { RequestId } from "../../protocol/envelope.ts";
import { ProtocolError } from "../../protocol/errors.ts";

/** Open requests of the server on one connection. */
const MAX_OPEN_REQUESTS = 256;

/** A response of the client. */
export type ClientResponse = { type: "response"; result: unknown } | { type: "error"; message: string };

/** The requests that the server sends to one client. Ids are integers from 1. Responses arrive in any order. */
export class ClientRequests {
  readonly #open = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();
  #lastId = 0;
  #isDisconnected = false;

  /** Calls `send` with the id of the request. Resolves with the result; rejects on an error, an abort and a disconnect. */
  start(send: (id: number) => void, signal: AbortSignal): Promise<unknown> {
    if (this.#isDisconnected || signal.aborted) return Promise.reject(new Error("the client is disconnected"));
    if (this.#open.size >= MAX_OPEN_REQUESTS)
      return Promise.reject(new Error(`more than ${MAX_OPEN_REQUESTS} requests to the client are open`));
    const id = ++this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const onAbort = () => this.#take(id)?.reject(new Error("the request has ended"));
    signal.addEventListener("abort", onAbort, { once: true });
    this.#open.set(id, { resolve, reject });
    send(id);
    return promise.finally(() => signal.removeEventListener("abort", onAbort));
  }

  /** Handles a response. Ignores a late one. Throws if the server never sent a request with this id. */
  settle(id: RequestId, response: ClientResponse): void {
    if (typeof id !== "number" || id < 1 || id > this.#lastId)
      throw new ProtocolError(
        `unexpected client ${response.type === "error" ? "error" : "response"} for request id ${formatId(id)}`,
      );
    const open = this.#take(id);
    if (response.type === "error") open?.reject(new Error(response.message));
    else open?.resolve(response.result);
  }

  /** Rejects all open requests. */
  disconnected(): void {
    this.#isDisconnected = true;
    for (const id of [...this.#open.keys()]) this.#take(id)?.reject(new Error("the client is disconnected"));
  }

  #take(id: number): { resolve: (result: unknown) => void; reject: (error: Error) => void } | undefined {
    const open = this.#open.get(id);
    this.#open.delete(id);
    return open;
  }
}

/** Formats ids as in the error texts of Codex. */
function formatId(id: RequestId): string {
  return typeof id === "string" ? `String(${JSON.stringify(id)})` : `Integer(${id})`;
}
