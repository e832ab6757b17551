import { messageOf } from "../../base/error-message.ts";
import type { Message, RequestId, Trace } from "../../protocol/envelope.ts";
import { invalidParams, invalidRequest, ProtocolError, RequestError } from "../../protocol/errors.ts";
import {
  clientNotifications,
  isMethodName,
  type MethodName,
  methods,
  type ParamsOf,
} from "../../protocol/methods.ts";
import { DecodeError, type Infer } from "../../protocol/schema.ts";

/** A request whose method is known and whose params are typed. */
export type RoutedRequest = {
  [M in MethodName]: {
    type: "request";
    id: RequestId;
    method: M;
    params: ParamsOf<M>;
    /** The caller's own span, where it named one. */
    trace?: Trace | undefined;
  };
}[MethodName];

export type Routed =
  | RoutedRequest
  | { type: "initialized" }
  | { type: "ack"; processId: string; seq: number }
  | { type: "forwardAck"; streamId: string; bytes: number }
  /** Answered at once: no handler is asked. */
  | { type: "refused"; id: RequestId; error: RequestError };

/** Pure: from a message to what it asks for. Throws a ProtocolError for what ends the connection. */
export function routeMessage(message: Message): Routed {
  switch (message.type) {
    case "request":
      return routeRequest(message.id, message.method, message.params, message.trace);
    case "notification":
      return routeNotification(message.method, message.params);
    case "response":
      throw new ProtocolError(`unexpected client response for request id ${shownId(message.id)}`);
    case "error":
      throw new ProtocolError(`unexpected client error for request id ${shownId(message.id)}`);
  }
}

function routeRequest(id: RequestId, method: string, params: unknown, trace: Trace | undefined): Routed {
  if (!isMethodName(method))
    return {
      type: "refused",
      id,
      error: invalidRequest(`unknown method: ${method.slice(0, SHOWN_METHOD_LENGTH)}`),
    };
  try {
    // Method and params come from the same entry of the table.
    const routed = {
      type: "request",
      id,
      method,
      params: methods[method].params.decode(params ?? null),
    } as RoutedRequest;
    return trace ? { ...routed, trace } : routed;
  } catch (error) {
    if (error instanceof RequestError) return { type: "refused", id, error };
    if (error instanceof DecodeError)
      return { type: "refused", id, error: invalidParams(error.message, { cause: error }) };
    throw error;
  }
}

function routeNotification(method: string, params: unknown): Routed {
  switch (method) {
    case "initialized":
      return { type: "initialized" };
    case "process/ack":
      return { type: "ack", ...decoded(method, params) };
    case "forward/ack":
      return { type: "forwardAck", ...decoded(method, params) };
    default:
      throw new ProtocolError(`unexpected notification method: ${method.slice(0, SHOWN_METHOD_LENGTH)}`);
  }
}

function decoded<N extends keyof typeof clientNotifications>(
  name: N,
  params: unknown,
): Infer<(typeof clientNotifications)[N]["params"]> {
  try {
    // The params of a notification are what its own schema carries.
    return clientNotifications[name].params.decode(params) as Infer<
      (typeof clientNotifications)[N]["params"]
    >;
  } catch (cause) {
    throw new ProtocolError(`malformed ${name}: ${messageOf(cause)}`, { cause });
  }
}

/** Of a method that nobody knows, as much as one needs to find the mistake. */
const SHOWN_METHOD_LENGTH = 256;

/** Ids as the seeds' texts show them. */
function shownId(id: RequestId): string {
  return typeof id === "string" ? `String(${JSON.stringify(id)})` : `Integer(${id})`;
}
