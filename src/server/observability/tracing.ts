import { errorMessage } from "../../base/error-message.ts";
import type { Trace } from "../../protocol/envelope.ts";
import type { MethodName } from "../../protocol/methods.ts";

/** Attributes of a request for its span. */
export interface TracedRequest {
  method: MethodName;
  /** The process id in the request. */
  processId?: string | undefined;
  /** Trace context of the caller, which becomes the parent of the span. */
  trace?: Trace | undefined;
}

/** Creates one span per request. The span is the active span while `run` executes. */
export interface Tracing {
  request<T>(request: TracedRequest, run: () => Promise<T>): Promise<T>;
}

/**
 * Creates spans through the OpenTelemetry SDK that the program has registered; without an SDK they are discarded.
 * Loads `@opentelemetry/api` on demand and rejects if it is not installed.
 */
export async function openTracing(version: string): Promise<Tracing> {
  const api = await import("@opentelemetry/api").catch((cause: unknown) => {
    const why =
      "tracing requires the package @opentelemetry/api; install it next to procwire, with an SDK that exports the spans";
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
          span.setStatus({ code: api.SpanStatusCode.ERROR, message: errorMessage(error) });
          throw error;
        } finally {
          span.end();
        }
      });
    },
  };
}
