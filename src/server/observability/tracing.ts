import { messageOf } from "../../base/error-message.ts";
import type { Trace } from "../../protocol/envelope.ts";
import type { MethodName } from "../../protocol/methods.ts";

/** What a request is about, for those who look at its span. */
export interface TracedRequest {
  method: MethodName;
  /** The process it names, as its session calls it. */
  processId?: string | undefined;
  /** Where it belongs: the caller's own span. */
  trace?: Trace | undefined;
}

/** Makes a span of each request. What runs in it finds that span as the active one. */
export interface Tracing {
  request<T>(request: TracedRequest, run: () => Promise<T>): Promise<T>;
}

/**
 * Through whichever OpenTelemetry SDK the program has registered; without one nothing is recorded. Loaded only when asked
 * for: rejects where the package is not installed.
 */
export async function openTracing(version: string): Promise<Tracing> {
  const api = await import("@opentelemetry/api").catch((cause: unknown) => {
    const why =
      "tracing needs the package @opentelemetry/api beside procwire; install it, and an SDK to send the spans";
    throw new Error(why, { cause });
  });
  const tracer = api.trace.getTracer("procwire", version);
  return {
    request({ method, processId, trace = {} }, run) {
      const parent = api.propagation.extract(api.ROOT_CONTEXT, trace);
      const attributes = {
        ...{ "rpc.system": "jsonrpc", "rpc.method": method },
        "procwire.process_id": processId,
      };
      const options = { kind: api.SpanKind.SERVER, attributes };
      return tracer.startActiveSpan(method, options, parent, async (span) => {
        try {
          return await run();
        } catch (error) {
          span.setStatus({ code: api.SpanStatusCode.ERROR, message: messageOf(error) });
          throw error;
        } finally {
          span.end();
        }
      });
    },
  };
}
