import { errorStack } from "../../base/error-message.ts";
import { invalidRequest, RequestError, toWireError } from "../../protocol/errors.ts";
import type { InProcessClient, InProcessConnection } from "../../protocol/in-process.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { ServerLog } from "../host-services.ts";
import { ConnectionHandler } from "./connection-handler.ts";
import type { ConnectionLoopDeps } from "./connection-loop.ts";
import type { Peer } from "./peer.ts";

/** Serves a client in the same program, without JSON. The caller closes the handler when `close` is called. */
export function serveInProcess(
  client: InProcessClient,
  deps: ConnectionLoopDeps,
  close: (reason: string | null) => void,
): { handler: ConnectionHandler; connection: InProcessConnection } {
  const peer: Peer = {
    keepsBytes: true,
    notify: (notification) => client.onNotification(notification),
    request: async (request, { signal }) => {
      if (!client.onRequest) throw invalidRequest(`unknown method: ${request.method}`);
      return client.onRequest(request, signal);
    },
    isAboveBulkLimit: false,
    isAboveQueueLimit: false,
    sentPosition: () => 0,
    isFlushedThrough: () => true,
    onDrain: () => () => undefined,
    close,
  };
  const handler = new ConnectionHandler(peer, deps);
  const connection: InProcessConnection = {
    call: (method, params) => callInProcess(handler, deps.log, method, params),
    initialized: () => handler.initialized(),
    ack: ({ processId, seq }) => handler.ack(processId, seq),
    forwardAck: ({ streamId, bytes }) => handler.forwardAck(streamId, bytes),
    close: () => close(null),
  };
  return { handler, connection };
}

async function callInProcess<M extends MethodName>(
  handler: ConnectionHandler,
  log: ServerLog,
  method: M,
  params: ParamsOf<M>,
): Promise<ResultOf<M>> {
  const afterResponse: (() => void)[] = [];
  try {
    return await handler.call(method, params, { afterResponse: (task) => afterResponse.push(task) });
  } catch (error) {
    if (error instanceof RequestError) throw error;
    const bug = (cause: unknown) => log("error", `${method} failed unexpectedly`, { error: errorStack(cause) });
    const { code, message } = toWireError(error, true, bug);
    throw new RequestError(code, message, { cause: error });
  } finally {
    // The caller's continuation is already queued, so these tasks run after it.
    if (afterResponse.length > 0)
      setImmediate(() => {
        for (const task of afterResponse) task();
      });
  }
}
