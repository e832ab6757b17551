import { bracketHost } from "../../base/ip-address.ts";
import { whenListening, wrapListener } from "../../connection/node-socket-listener.ts";
import type { ExecServer } from "../exec-server.ts";

/**
 * Serves only `/metrics`, on a separate listener without authentication, for a network that only the scraper reaches.
 */
export async function listenForMetrics(
  server: ExecServer,
  at: { host: string; port: number },
): Promise<{ url: string; close(): void }> {
  const { createServer } = process.getBuiltinModule("node:http");
  const http = createServer((request, response) => {
    const isMetricsRequest = request.method === "GET" && request.url?.split("?", 1)[0] === "/metrics";
    const text = isMetricsRequest ? server.metricsText() : null;
    response.setHeader("content-type", "text/plain; version=0.0.4; charset=utf-8");
    response.writeHead(text === null ? 404 : 200);
    response.end(text ?? "this listener serves only GET /metrics\n");
  });
  await whenListening(http, () => http.listen({ ...at }));
  return {
    url: `http://${bracketHost(at.host)}:${wrapListener(http).port}/metrics`,
    close: () => {
      http.closeAllConnections();
      http.close();
    },
  };
}
