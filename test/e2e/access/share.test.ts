/** A share link of a real server grants one role on one process for a limited time, and nothing else. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { startParams } from "../../support/servers/raw-connection.ts";
import { runCli } from "../../support/servers/run-cli.ts";
import { type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

async function setup(server: ServeChild) {
  const owner = await server.connect();
  await owner.handshake({ extensions: ["attach"] });
  const start = async (processId: string) => {
    const params = startParams(processId, ["cat"], { pipeStdin: true, lifetime: "server" });
    return String((await owner.call("process/start", params)).handle);
  };
  const share = async (handle: string, role: string, ttlMs = 60_000) =>
    String((await owner.call("process/share", { handle, role, ttlMs })).token);
  const connectAsGuest = async (token: string) => {
    const guest = await server.connect(bearer(token));
    await guest.handshake({ extensions: ["attach"] });
    return guest;
  };
  return { owner, start, share, connectAsGuest, [Symbol.asyncDispose]: () => owner[Symbol.asyncDispose]() };
}

describe("a share link", { timeout: 600_000 }, () => {
  test("grants its role on one process, and nothing else of the server", async () => {
    using scratch = scratchDirectory();
    const audit = join(scratch.path, "audit.jsonl");
    await using server = await serve("--audit", audit, "--allow-forward");
    await using set = await setup(server);
    const [handle, other] = [await set.start("one"), await set.start("two")];
    const token = await set.share(handle, "viewer");
    await using viewer = await set.connectAsGuest(token);
    assert.equal((await viewer.call("process/attach", { handle, role: "viewer" })).role, "viewer");
    await set.owner.call("process/write", { processId: "one", chunk: "aGVsbG8K" });
    await viewer.outputContains(handle, "hello");
    const listed = await viewer.call("process/list", { allSessions: true });
    assert.deepEqual(
      (listed.processes as { handle: string }[]).map((one) => one.handle),
      [handle],
    );
    const refused = async (client: typeof viewer, method: string, params: object) =>
      JSON.stringify((await client.request(method, params)).error ?? "not refused");
    assert.match(await refused(viewer, "process/attach", { handle, role: "driver" }), /grants the role viewer/);
    assert.match(await refused(viewer, "process/attach", { handle: other, role: "viewer" }), /unknown handle/);
    assert.match(await refused(viewer, "process/tree", { handle: other }), /unknown handle/);
    const watching = /uses a share link, which grants the role viewer on one process/;
    for (const [method, params] of [
      ["process/start", startParams("x", ["id"])],
      ["process/kill", { handle }],
      ["process/share", { handle, role: "driver", ttlMs: 1000 }],
      ["process/write", { processId: handle, chunk: "eA==" }],
      ["process/signal", { processId: handle, signal: "SIGTERM" }],
      ["process/terminate", { processId: handle }],
      ["fs/readFile", { path: "file:///etc/passwd" }],
      ["environment/info", {}],
      ["command/exec", { argv: ["id"], cwd: "/", env: {}, tty: false }],
      ["forward/open", { streamId: "s", host: "127.0.0.1", port: 1 }],
      ["forward/listen", { listenId: "l", port: 0 }],
      ["forward/watchPorts", { watch: true }],
      ["http/request", { requestId: "r", method: "GET", url: "http://127.0.0.1:1/", headers: [] }],
    ] as const)
      assert.match(await refused(viewer, method, params), watching, method);
    const driving = await set.share(handle, "driver");
    await using driver = await set.connectAsGuest(driving);
    await driver.call("process/attach", { handle, role: "driver" });
    await driver.call("process/write", { processId: handle, chunk: "dHlwZWQK" });
    await viewer.outputContains(handle, "typed");
    assert.match(await refused(driver, "process/start", startParams("x", ["id"])), /share link/);
    assert.match(await refused(driver, "forward/listen", { listenId: "l", port: 0 }), /share link/);
    const written = `${readFileSync(audit, "utf8")}${server.stderr}${server.stdout}`;
    assert.match(written, /"event":"process\/share","outcome":"allowed"/);
    assert.match(written, /"principal":"share:2"/);
    assert.match(
      written,
      /"principal":"share:1",[^\n]*"event":"fs\/readFile","outcome":"refused",[^\n]*"reason":[^\n]*share link/,
    );
    assert.ok(![token, driving].some((secret) => written.includes(secret)));
  });

  test("is listed and revoked by its principal, which closes the connections that use it", async () => {
    using scratch = scratchDirectory();
    const audit = join(scratch.path, "audit.jsonl");
    await using server = await serve("--audit", audit);
    await using set = await setup(server);
    const [handle, other] = [await set.start("one"), await set.start("two")];
    const [viewing, driving] = [await set.share(handle, "viewer"), await set.share(handle, "driver")];
    await using guest = await set.connectAsGuest(driving);
    await guest.call("process/attach", { handle, role: "driver" });
    const list = async (of = handle) =>
      (await set.owner.call("process/listShares", { handle: of })).shares as Record<string, unknown>[];
    const shares = await list();
    assert.deepEqual(
      shares.map(({ shareId, role, principal, connections }) => ({ shareId, role, principal, connections })),
      [
        { shareId: "share:1", role: "viewer", principal: "local", connections: 0 },
        { shareId: "share:2", role: "driver", principal: "local", connections: 1 },
      ],
    );
    assert.ok(!JSON.stringify(shares).includes(viewing) && !JSON.stringify(shares).includes(driving));
    assert.deepEqual(await list(other), []);
    for (const [method, params] of [
      ["process/listShares", { handle }],
      ["process/revokeShare", { handle, shareId: "share:1" }],
    ] as const)
      assert.match((await guest.refused(method, params)).message, /uses a share link/);
    const revoke = async (of: string, shareId: string) =>
      (await set.owner.call("process/revokeShare", { handle: of, shareId })).revoked;
    assert.equal(await revoke(other, "share:2"), false);
    assert.equal(await revoke(handle, "share:2"), true);
    await guest.ended();
    await assert.rejects(set.connectAsGuest(driving));
    assert.equal(await revoke(handle, "share:2"), false);
    assert.deepEqual(
      (await list()).map(({ shareId }) => shareId),
      ["share:1"],
    );
    assert.match(
      readFileSync(audit, "utf8"),
      /"event":"process\/revokeShare","outcome":"allowed","handle":"[a-z2-7]+","shareId":"share:2"/,
    );
  });

  test("expires after its time, also for connected guests, and when its process ends", async () => {
    await using server = await serve();
    await using set = await setup(server);
    const handle = await set.start("one");
    await using guest = await set.connectAsGuest(await set.share(handle, "viewer", 700));
    await guest.call("process/attach", { handle, role: "viewer" });
    await guest.ended();
    const lasting = await set.share(handle, "viewer");
    await (await set.connectAsGuest(lasting))[Symbol.asyncDispose]();
    await set.owner.call("process/kill", { handle });
    await set.owner.notification("process/exited", "one");
    await assert.rejects(set.connectAsGuest(lasting), /401/);
    // On a server without authentication an expired link must not make a guest the owner.
    await assert.rejects(set.connectAsGuest("share-nothing"), /401/);
    const again = await set.owner.request("process/share", { handle, role: "viewer", ttlMs: 1000 });
    assert.match(JSON.stringify(again.error), /has ended and cannot be shared/);
    const next = await set.start("next");
    for (const ttlMs of [0, 8 * 24 * 3600_000])
      assert.match(
        JSON.stringify((await set.owner.request("process/share", { handle: next, role: "viewer", ttlMs })).error),
        /ttlMs must be between 1 and 604800000/,
      );
  });

  test("is printed as a URL by procwire share, and its token attaches a viewer", async () => {
    await using server = await serve();
    await using set = await setup(server);
    const handle = await set.start("one");
    const shared = await runCli(["share", "--expires", "5m", handle.slice(0, 6)], {
      cwd: "/",
      env: { PROCWIRE_CONNECT: server.url },
    });
    assert.equal(shared.code, 0, shared.stderr);
    const [, token = ""] =
      /^http:\/\/127\.0\.0\.1:\d+\/#share=(share-[\w-]{32})&process=[a-z2-7]{12}&role=viewer\n$/.exec(shared.stdout) ??
      [];
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url, authToken: token });
    const process = await client.attach(handle);
    assert.equal(process.role, "viewer");
    await assert.rejects(client.attach(handle, { role: "driver" }), /grants the role viewer/);
    const share = (...args: string[]) => runCli(["share", "--connect", server.url, ...args, handle], { cwd: "/" });
    assert.match((await share("--list")).stdout, /^share:1\tviewer\t4m\d+s\t1 guests\tlocal\n$/);
    assert.equal((await share("--revoke", "share:1")).code, 0);
    assert.equal((await share("--list")).stdout, "");
    const again = await share("--revoke", "share:1");
    assert.deepEqual([again.code, /unknown link share:1 of process/.test(again.stderr)], [1, true]);
    const bad = await runCli(["share", "--connect", server.url, "--expires", "soon", handle], { cwd: "/" });
    assert.deepEqual([bad.code, /soon/.test(bad.stderr)], [2, true]);
  });
});
