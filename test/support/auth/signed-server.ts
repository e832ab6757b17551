/** A server in this process that requires signed tokens, on a manual clock and with real sockets. */

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { INVALID_TOKEN_DELAY_MS, type WebSocketAuth } from "../../../src/server/auth/websocket-auth.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { type ListenOptions, listen } from "../../../src/server/listen/listen.ts";
import type { ServerConfig } from "../../../src/server/server-config.ts";
import { ManualClock } from "../manual-clock.ts";
import { WireClient, webSocketWire } from "../servers/raw-connection.ts";
import { until } from "../system/until.ts";

export const TEST_SECRET = "0123456789abcdef0123456789abcdef";
export const CLOCK_SKEW_SECONDS = 30;

/** Signs claims with HS256. */
export function signToken(claims: object, secret = TEST_SECRET): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${body}.${createHmac("sha256", secret).update(body).digest("base64url")}`;
}

export const bearerOf = (token: string) => ({ authorization: `Bearer ${token}` });

export const signedAuth: WebSocketAuth = {
  type: "signed-bearer-token",
  secret: Buffer.from(TEST_SECRET),
  maxClockSkewSeconds: CLOCK_SKEW_SECONDS,
  operatorClaim: { name: "role", value: "operator" },
};

export interface SignedServerOptions extends ListenOptions {
  config?: Partial<ServerConfig>;
}

/** Starts a server. Its tokens are valid for `seconds` of the manual clock. */
export async function serveSigned({ config, ...options }: SignedServerOptions = {}) {
  const clock = new ManualClock();
  const server = new ExecServer({ ...createLocalHost(), clock }, config);
  const listening = await listen(
    server,
    { type: "websocket", host: "127.0.0.1", port: 0 },
    { auth: signedAuth, ...options },
  );
  const token = (seconds: number, claims: object = {}) =>
    signToken({ sub: "alice", exp: clock.now() / 1000 + seconds, ...claims });
  return {
    ...{ clock, server, listening, token, url: listening.url, port: Number(new URL(listening.url).port) },
    connect: async (bearer: string) => new WireClient(await webSocketWire(listening.url, bearerOf(bearer))),
    /** Asserts that the server rejects a token. Advances the clock past the delay of the response. */
    rejects: async (bearer: string) => {
      let isSettled = false;
      const attempt = webSocketWire(listening.url, bearerOf(bearer)).finally(() => {
        isSettled = true;
      });
      attempt.catch(() => undefined);
      await until("the server responds", async () => {
        if (!isSettled) await clock.advance(INVALID_TOKEN_DELAY_MS);
        return isSettled;
      });
      await assert.rejects(attempt, /401/);
    },
    async [Symbol.asyncDispose]() {
      const closed = listening.close();
      await server.close();
      listening.destroyPending();
      await closed;
    },
  };
}
