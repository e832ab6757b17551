/** Requests as spans, below the caller's own, by the real OpenTelemetry API and SDK. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { context, propagation, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { openTracing } from "../../../src/server/observability/tracing.ts";
import { memoryWire, startParams, WireClient } from "../../support/servers/raw-connection.ts";

const exporter = new InMemorySpanExporter();
before(() => {
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
});
after(() => {
  trace.disable();
  context.disable();
  propagation.disable();
});

const spansNamed = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);
const process = { cwd: "/", env: {}, tty: false };

describe("a traced server", () => {
  test("creates a span per request, as a child of the caller's span", async () => {
    exporter.reset();
    await using server = new ExecServer({ ...createLocalHost(), tracing: await openTracing("1") });
    await using client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const params = startParams("traced", ["/bin/true"]);
    client.raw(JSON.stringify({ id: 900, method: "process/start", params, trace: { traceparent } }));
    await client.finished("traced");
    const refused = await client.request("process/start", startParams("none", ["/dev/null/none"]));
    assert.ok(refused.error);
    const [started, failed] = spansNamed("process/start");
    assert.equal(started?.spanContext().traceId, "0af7651916cd43dd8448eb211c80319c");
    assert.equal(started?.parentSpanContext?.spanId, "b7ad6b7169203331");
    assert.equal(started?.kind, SpanKind.SERVER);
    assert.deepEqual(started?.attributes, {
      "rpc.system": "jsonrpc",
      "rpc.method": "process/start",
      "procwire.process_id": "traced",
    });
    assert.equal(started?.status.code, SpanStatusCode.UNSET);
    assert.equal(failed?.parentSpanContext, undefined);
    assert.equal(failed?.status.code, SpanStatusCode.ERROR);
    assert.match(failed?.status.message ?? "", /\S/);
  });

  test("continues the trace of a client over a real connection", async (t) => {
    exporter.reset();
    await using server = new ExecServer({ ...createLocalHost(), tracing: await openTracing("1") });
    const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
    t.after(async () => {
      listening.destroyPending();
      await listening.close();
    });
    const inject = () => {
      const carrier: Record<string, string> = {};
      propagation.inject(context.active(), carrier);
      return carrier;
    };
    await using client = await NodeExecServerClient.connectWebSocket({ url: listening.url, trace: inject });
    const traceId = await trace.getTracer("test").startActiveSpan("job", async (span: Span) => {
      const child = await client.start({ ...process, processId: "p", argv: ["/bin/true"] });
      await child.wait();
      span.end();
      return span.spanContext().traceId;
    });
    await client.info();
    const [job] = spansNamed("job");
    const [started] = spansNamed("process/start");
    assert.equal(started?.spanContext().traceId, traceId);
    assert.equal(started?.parentSpanContext?.spanId, job?.spanContext().spanId);
    assert.notEqual(spansNamed("environment/info")[0]?.spanContext().traceId, traceId);
  });

  test("ignores a malformed traceparent", async () => {
    exporter.reset();
    await using server = new ExecServer({ ...createLocalHost(), tracing: await openTracing("1") });
    await using client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake();
    client.raw(JSON.stringify({ id: 901, method: "environment/status", trace: { traceparent: "00-zz-1-1" } }));
    await client.roundTrip();
    assert.equal(spansNamed("environment/status")[0]?.parentSpanContext, undefined);
  });
});
