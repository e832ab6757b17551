import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { RevokedTokens } from "../../../src/server/auth/revoked-tokens.ts";
import { CLOCK_SKEW_SECONDS, serveSigned } from "../../support/auth/signed-server.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());
let count = 0;
const newPath = () => join(scratch.path, `revoked-${++count}`);
const linesOf = (path: string) => readFileSync(path, "utf8").split("\n").filter(Boolean);

describe("revoked tokens", () => {
  test("are forgotten at their expiry; those without an expiry stay", async () => {
    const clock = new ManualClock();
    const revoked = new RevokedTokens(newPath(), clock);
    revoked.add("short", "alice", clock.now() + 1000);
    revoked.add("endless", "alice", undefined);
    await clock.advance(999);
    assert.deepEqual(
      ["short", "endless"].map((id) => revoked.has(id)),
      [true, true],
    );
    await clock.advance(1);
    revoked.refresh();
    assert.equal(revoked.size, 1);
    assert.deepEqual(
      ["short", "endless"].map((id) => revoked.has(id)),
      [false, true],
    );
  });

  test("leave the file at the next start if half of its lines are expired", async () => {
    const clock = new ManualClock();
    const path = newPath();
    const revoked = new RevokedTokens(path, clock);
    for (let at = 0; at < 4; at++) revoked.add(`t${at}`, "alice", clock.now() + 1000 * (at + 1));
    revoked.add("endless", "alice", undefined);
    await clock.advance(1000);
    assert.equal(new RevokedTokens(path, clock).size, 4);
    assert.equal(linesOf(path).length, 5);
    await clock.advance(2000);
    assert.equal(new RevokedTokens(path, clock).size, 2);
    assert.deepEqual(
      linesOf(path).map((line) => JSON.parse(line).tokenId),
      ["t3", "endless"],
    );
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.ok(!existsSync(`${path}.lock`) && !existsSync(`${path}.new`));
    // The former server keeps its ids, and still adds to the new file.
    revoked.add("late", "alice", undefined);
    assert.ok(new RevokedTokens(path, clock).has("late"));
  });

  test("keep the latest expiry of an id, and stay in the file while it is locked", () => {
    const clock = new ManualClock();
    const path = newPath();
    const line = (expiresAtMs: number) =>
      `${JSON.stringify({ tokenId: "twice", expiresAt: new Date(expiresAtMs).toISOString() })}\n`;
    writeFileSync(path, line(clock.now() + 5000) + line(clock.now() - 5000) + line(clock.now() - 5000));
    writeFileSync(`${path}.lock`, "");
    assert.ok(new RevokedTokens(path, clock).has("twice"));
    assert.equal(linesOf(path).length, 3);
  });

  test("stay if one of several revocations of an id has no expiry", async () => {
    const clock = new ManualClock();
    const revoked = new RevokedTokens(newPath(), clock);
    const soonMs = clock.now() + 1000;
    for (const expiresAtMs of [soonMs, undefined]) revoked.add("last", "alice", expiresAtMs);
    for (const expiresAtMs of [undefined, soonMs]) revoked.add("first", "alice", expiresAtMs);
    await clock.advance(1000);
    revoked.refresh();
    assert.ok(revoked.has("last") && revoked.has("first"));
  });

  test("with an unreadable expiry never expire", () => {
    const path = newPath();
    writeFileSync(path, '{"tokenId":"odd","expiresAt":"soon"}\n{"tokenId":"number","expiresAt":1}\n');
    const revoked = new RevokedTokens(path);
    assert.ok(revoked.has("odd") && revoked.has("number"));
  });

  test("are not lost if programs append while servers remove expired lines", async () => {
    const path = newPath();
    writeFileSync(path, "");
    const module = new URL("../../../src/server/auth/revoked-tokens.ts", import.meta.url).href;
    const appender = (name: string) =>
      spawn(process.execPath, [
        "--input-type=module",
        "-e",
        `const { appendRevokedToken } = await import(${JSON.stringify(module)});
         for (let at = 0; at < 100; at++)
           appendRevokedToken(${JSON.stringify(path)}, { tokenId: "${name}" + at, by: "x", nowMs: 0 });`,
      ]);
    const children = [appender("a"), appender("b")];
    const ended = Promise.all(children.map((child) => once(child, "exit")));
    let isEnded = false;
    void ended.then(() => {
      isEnded = true;
    });
    const expired = `${JSON.stringify({ tokenId: "old", expiresAt: new Date(0).toISOString() })}\n`;
    do {
      // More expired than valid lines, so that each start replaces the file.
      appendFileSync(path, expired.repeat(250));
      new RevokedTokens(path);
      await new Promise(setImmediate);
    } while (!isEnded);
    assert.deepEqual(
      (await ended).map(([code]) => code),
      [0, 0],
    );
    const revoked = new RevokedTokens(path);
    for (const name of ["a", "b"])
      for (let at = 0; at < 100; at++) assert.ok(revoked.has(`${name}${at}`), `${name}${at}`);
  });

  test("get the expiry of the token in use, with the clock skew", async () => {
    const revokedTokensFile = newPath();
    await using server = await serveSigned({ revokedTokensFile });
    await using alice = await server.connect(server.token(60, { jti: "one" }));
    await alice.handshake();
    const expiresAt = new Date(server.clock.now() + (60 + CLOCK_SKEW_SECONDS) * 1000).toISOString();
    await alice.request("token/revoke", { tokenId: "one" }).catch(() => undefined);
    assert.equal(JSON.parse(linesOf(revokedTokensFile)[0] ?? "").expiresAt, expiresAt);
    await server.rejects(server.token(60, { jti: "one" }));
  });
});
