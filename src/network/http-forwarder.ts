import { type ClientRequest, type IncomingMessage, type ServerResponse, request as sendRequest } from "node:http";
import type { Readable } from "node:stream";
import type { RequestSecrets } from "./credentials/request-secrets.ts";
import { BadTargetError, type HttpTarget, hostAndPort, hostHeader } from "./http-target.ts";
import type { Outgoing } from "./outgoing.ts";
import type { Allowed } from "./request-judge.ts";

/** Headers that apply to one connection only. `expect` is handled by this proxy. */
const HOP_BY_HOP = new Set([
  ...["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host"],
]);
/** Methods for which Node sends no body unless the headers announce one. */
const BODILESS_METHODS = new Set(["GET", "HEAD", "OPTIONS", "DELETE", "TRACE"]);

/** Throws `BadTargetError` for a transfer coding that this proxy cannot pass on. */
export function requirePlainBody({ headers }: IncomingMessage): void {
  const coding = headers["transfer-encoding"];
  if (coding !== undefined && coding.toLowerCase() !== "chunked")
    throw new BadTargetError("unsupported transfer encoding");
}

/** A request of a process, and the response that it gets. */
export interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  /** Aborts when the requester has disconnected. */
  signal: AbortSignal;
}

/**
 * Sends an allowed request to its destination and streams the response back. Rejects if the destination cannot be reached
 * or fails before its response.
 */
export async function forwardRequest(
  outgoing: Outgoing,
  target: HttpTarget,
  allowed: Allowed,
  exchange: Exchange,
  secrets: RequestSecrets | null,
): Promise<void> {
  const { request, signal } = exchange;
  const { scheme, port } = target;
  const upstream = scheme === "http" ? outgoing.upstreamFor(allowed.host, "http") : null;
  const socket =
    upstream !== null
      ? await outgoing.connectToProxy(upstream, signal)
      : scheme === "https"
        ? await outgoing.tls(allowed, signal)
        : await outgoing.connect(allowed, signal);
  const path =
    upstream === null ? target.path : `http://${hostHeader({ scheme, host: allowed.host, port })}${target.path}`;
  // As in Codex: a missing header names the port for an upstream proxy.
  const named = upstream === null ? hostHeader(target) : hostAndPort(allowed.host, port);
  const headers = requestHeaders(request, target.hostHeader ?? named, secrets);
  if (upstream?.authorization) headers.push("Proxy-Authorization", upstream.authorization);
  const sent = sendRequest({
    ...{ method: request.method ?? "GET", path, headers, setHost: false },
    createConnection: () => socket,
  });
  sent.once("error", () => socket.destroy());
  await relay(sent, exchange, secrets);
}

/** Returns the raw headers of a request to the destination. `host` is its Host header. */
export function requestHeaders(request: IncomingMessage, host: string, secrets: RequestSecrets | null): string[] {
  const passed = passedHeaders(request.rawHeaders);
  return ["Host", host, ...(secrets?.putInto(passed) ?? passed), ...bodyHeaders(request)];
}

/** Resolves when the response has begun. Its body, and a failure of it, then belong to the client's connection. */
export function relay(
  sent: ClientRequest,
  { request, response, signal }: Exchange,
  secrets: RequestSecrets | null,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const close = () => sent.destroy();
    if (signal.aborted) close();
    signal.addEventListener("abort", close, { once: true });
    sent.on("error", (error) => {
      // The destination may close a connection that it has kept alive. The client sees the same and may repeat its request.
      if (response.headersSent || sent.reusedSocket) response.destroy();
      reject(error);
    });
    sent.once("close", () => {
      signal.removeEventListener("abort", close);
      if (!response.headersSent) reject(new Error("the destination closed the connection without a response"));
    });
    sent.once("response", (answer) => {
      try {
        respond(answer, { request, response }, secrets);
      } catch (error) {
        sent.destroy();
        reject(error);
        return;
      }
      resolve();
    });
    request.pipe(sent);
  });
}

/** Streams the response of the destination to the client. */
function respond(
  answer: IncomingMessage,
  { request, response }: Pick<Exchange, "request" | "response">,
  secrets: RequestSecrets | null,
): void {
  const { statusCode = 502, statusMessage = "" } = answer;
  const hasBody = request.method !== "HEAD" && statusCode !== 204 && statusCode !== 304;
  const filters = secrets && hasBody ? secrets.maskBody(answer.headers) : [];
  if (filters === null) throw new Error("the destination sent a body in an unknown encoding");
  const headers = passedHeaders(answer.rawHeaders);
  response.writeHead(
    statusCode,
    secrets?.mask(statusMessage) ?? statusMessage,
    secrets?.maskHeaders(headers, { hasBody }) ?? headers,
  );
  const fail = () => response.destroy();
  answer.on("error", fail);
  answer.on("close", () => {
    // A truncated response must not look complete.
    if (!answer.complete) fail();
  });
  let body: Readable = answer;
  for (const filter of filters) {
    filter.on("error", fail);
    body = body.pipe(filter);
  }
  body.pipe(response);
}

/** Returns raw headers without those of one connection, and without `Proxy-*`. */
function passedHeaders(rawHeaders: readonly string[]): string[] {
  const listed = new Set<string>();
  const pairs: [name: string, value: string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    const value = rawHeaders[at + 1] ?? "";
    if (name.toLowerCase() === "connection")
      for (const token of value.split(",")) listed.add(token.trim().toLowerCase());
    pairs.push([name, value]);
  }
  return pairs.flatMap(([name, value]) => {
    const key = name.toLowerCase();
    const isDropped = HOP_BY_HOP.has(key) || key.startsWith("proxy-") || (listed.has(key) && key !== "content-length");
    return isDropped ? [] : [name, value];
  });
}

/** Announces the body as the client did: `passedHeaders` keeps `content-length`. */
function bodyHeaders({ headers, method = "GET" }: IncomingMessage): string[] {
  if (headers["transfer-encoding"] !== undefined) return ["Transfer-Encoding", "chunked"];
  return headers["content-length"] === undefined && !BODILESS_METHODS.has(method) ? ["Content-Length", "0"] : [];
}
