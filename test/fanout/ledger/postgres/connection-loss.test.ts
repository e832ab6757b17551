import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { describe, test } from "node:test";
import { Client, Pool } from "pg";
import { isLostConnection } from "../../../../src/fanout/ledger/postgres/connection-loss.ts";

/** Starts a TCP server that treats each connection like a broken database, and returns its port. */
async function breakDatabase(onSocket: (socket: Socket) => void) {
  const server = createServer((socket) => onSocket(socket.on("error", () => undefined)));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  return { port: address.port, [Symbol.dispose]: () => server.close() };
}

async function failureOf(attempt: Promise<unknown>): Promise<Error> {
  const error = await attempt.then(
    () => null,
    (cause: unknown) => cause,
  );
  assert.ok(error instanceof Error);
  return error;
}

describe("isLostConnection", () => {
  test("recognizes the codes of the system and of Postgres", () => {
    for (const code of ["ECONNREFUSED", "ENOTFOUND", "08006", "57P01", "57P05", "53300"])
      assert.ok(isLostConnection(Object.assign(new Error("any"), { code })), code);
    for (const code of ["23505", "57P04", "57014", "EACCES"])
      assert.ok(!isLostConnection(Object.assign(new Error("any"), { code })), code);
    assert.ok(!isLostConnection(new Error("relation does not exist")));
  });

  test("recognizes the errors of the installed driver, which have no code", async () => {
    using closing = await breakDatabase((socket) => socket.once("data", () => socket.end()));
    const sockets: Socket[] = [];
    using silent = await breakDatabase((socket) => sockets.push(socket));
    const lost = new Client({ host: "127.0.0.1", port: closing.port, user: "u" });
    const slow = new Client({ host: "127.0.0.1", port: silent.port, user: "u", connectionTimeoutMillis: 20 });
    const pool = new Pool({ host: "127.0.0.1", port: silent.port, user: "u", connectionTimeoutMillis: 20, max: 1 });
    const errors = [
      await failureOf(lost.connect()),
      await lost.end().then(() => failureOf(lost.query("SELECT 1"))),
      await failureOf(slow.connect()),
      ...(await Promise.all([failureOf(pool.connect()), failureOf(pool.connect())])),
    ];
    for (const socket of sockets) socket.destroy();
    await pool.end();
    for (const error of errors) {
      assert.ok(!("code" in error), `${error.message} has a code: remove its text from pg-compat.ts`);
      assert.ok(isLostConnection(error), error.message);
    }
    assert.equal(new Set(errors.map(({ message }) => message)).size, errors.length);
  });
});
