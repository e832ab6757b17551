import { errorMessage } from "../../base/error-message.ts";
import type { Message, RequestId, Trace } from "../../protocol/envelope.ts";
import { invalidParams, invalidRequest, ProtocolError, RequestError } from "../../protocol/errors.ts";
import { clientNotifications, isMethodName, type MethodName, methods, type ParamsOf } from "../../protocol/methods.ts";
import { DecodeError, type Infer } from "../../protocol/schema.ts";
import type { ClientResponse } from "./client-requests.ts";

/** A request whose method is known and whose params are typed. */
export type RoutedRequest = {
  [M in MethodName]: {
    type: "request";
    id: RequestId;
    method: M;
    params: ParamsOf<M>;
    /** Trace context of the caller, if the request has one. */
    trace?: Trace | undefined;
  };
}[MethodName];

export type Routed =
  | RoutedRequest
  | { type: "initialized" }
  | { type: "ack"; processId: string; seq: number }
  | { type: "forwardAck"; streamId: string; bytes: number }
  | { type: "clientResponse"; id: RequestId; response: ClientResponse }
  /** Rejected without calling a handler. */
  | { type: "refused"; id: RequestId; error: RequestError };

/** Returns a typed request or notification. Throws a ProtocolError if the connection must be closed. */
export function routeMessage(message: Message): Routed {
  switch (message.type) {
    case "request":
      return routeRequest(message.id, message.method, message.params, message.trace);
    case "notification":
      return routeNotification(message.method, message.params);
    case "response":
      return { type: "clientResponse", id: message.id, response: message };
    case "error":
      return { type: "clientResponse", id: message.id, response: { type: "error", message: message.error.message } };
  }
}

function routeRequest(id: RequestId, method: string, params: unknown, trace: Trace | undefined): Routed {
  if (!isMethodName(method))
    return {
      type: "refused",
      id,
      error: invalidRequest(`unknown method: ${method.slice(0, MAX_SHOWN_METHOD_LENGTH)}`, {
        reason: "unknownMethod",
      }),
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
      return { type: "ack", ...decodeParams(method, params) };
    case "forward/ack":
      return { type: "forwardAck", ...decodeParams(method, params) };
    default:
      throw new ProtocolError(`unexpected notification method: ${method.slice(0, MAX_SHOWN_METHOD_LENGTH)}`);
  }
}

function decodeParams<N extends keyof typeof clientNotifications>(
  name: N,
  params: unknown,
): Infer<(typeof clientNotifications)[N]["params"]> {
  try {
    // The schema of a notification decodes to its params type.
    return clientNotifications[name].params.decode(params) as Infer<(typeof clientNotifications)[N]["params"]>;
  } catch (cause) {
    throw new ProtocolError(`malformed ${name}: ${errorMessage(cause)}`, { cause });
  }
}

/** Maximum length of an unknown method name in an error message. */
const MAX_SHOWN_METHOD_LENGTH = 256;
