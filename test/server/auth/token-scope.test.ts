/** Scopes of tokens: every method against every scope, on a real server. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import type { MethodName } from "../../../src/protocol/methods.ts";
import { METHOD_SCOPES } from "../../../src/server/auth/method-scopes.ts";
import { parseScope, SCOPE_GROUPS } from "../../../src/server/auth/token-scope.ts";
import { serveSigned } from "../../support/auth/signed-server.ts";
import { startParams, WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

const path = pathToFileURL(`${scratch.path}/missing`).href;
const processId = "unknown";
const handle = "unknown";
const handleId = "h";
const streamId = "s";

/** Valid params of each method. No call has an effect that a later one could notice. */
const PARAMS: Readonly<Record<MethodName, object>> = {
  initialize: { clientName: "again" },
  "environment/info": {},
  "environment/status": {},
  "environmentConfig/read": { cwd: path, configPaths: [], requirementsPaths: [] },
  "capabilityRoots/discoverV1": { roots: [] },
  "capabilities/discoverV2": { cwd: path },
  "command/exec": { argv: ["true"], cwd: "/tmp", env: {}, tty: false },
  "command/exec/write": { sessionId: "unknown", chunk: "" },
  "command/exec/terminate": { sessionId: "unknown" },
  "process/start": startParams("p", ["/nonexistent"]),
  "process/read": { processId },
  "process/write": { processId, chunk: "" },
  "process/signal": { processId, signal: "interrupt" },
  "process/terminate": { processId },
  "process/closeStdin": { processId },
  "process/resize": { processId, size: { rows: 1, cols: 1 } },
  "process/wait": { processId },
  "process/snapshot": { processId },
  "process/list": {},
  "process/attach": { handle, role: "viewer" },
  "process/detach": { processId },
  "process/screen": { processId },
  "process/inputs": { processId },
  "process/claimQueries": { processId, seq: 1 },
  "process/tree": { handle },
  "process/connections": { handle },
  "process/share": { handle, role: "viewer", ttlMs: 1000 },
  "process/listShares": { handle },
  "process/revokeShare": { handle, shareId: "share:1" },
  "process/kill": { handle },
  "network/ask": { processId, host: "x.test", port: 443, protocol: "http", reason: "", canRemember: false },
  "network/questions": {},
  "network/answer": { questionId: "1", answer: "deny" },
  "fs/readFile": { path },
  "fs/writeFile": { path: `${path}/none`, dataBase64: "" },
  "fs/createDirectory": { path: `${path}/none`, recursive: false },
  "fs/getMetadata": { path },
  "fs/canonicalize": { path },
  "fs/readDirectory": { path },
  "fs/walk": {
    path,
    options: {
      maxDepth: 1,
      maxDirectories: 1,
      maxEntries: 1,
      followDirectorySymlinks: false,
      pruneHiddenDirectories: false,
    },
  },
  "fs/remove": { path, force: true },
  "fs/copy": { sourcePath: path, destinationPath: `${path}2`, recursive: false },
  "fs/open": { handleId, path },
  "fs/readBlock": { handleId, offset: 0, len: 1 },
  "fs/writeBlock": { handleId, offset: 0, chunk: "" },
  "fs/close": { handleId },
  "fs/watchMissing": { watchId: 1, missing: [path] },
  "fs/scan": { path },
  "fs/writeAtomic": { path: `${path}/none`, chunk: "" },
  "fs/setAttributes": { path, mode: 0o600 },
  "fs/openPartial": { handleId, path: `${path}/none` },
  "fs/checksum": { handleId, length: 0 },
  "fs/commit": { handleId, path, size: 0, digest: "0".repeat(64) },
  "http/request": { method: "GET", url: "http://127.0.0.1:1/", requestId: "r" },
  "forward/open": { streamId, host: "127.0.0.1", port: 1 },
  "forward/write": { streamId, chunk: "" },
  "forward/end": { streamId },
  "forward/close": { streamId },
  "forward/listen": { listenId: "l", port: 0 },
  "forward/unlisten": { listenId: "l" },
  "forward/watchPorts": { watch: false },
  "access/list": {},
  "access/revoke": { accessId: "connection:99" },
  "token/revoke": { tokenId: "unknown" },
  "console/login": {},
};

const LACKS_SCOPE = /is not allowed: the token of this connection lacks the scope /;
/** Groups that the sample params need besides one group of the table. */
const ALSO_NEEDS: { [M in MethodName]?: string } = {
  "fs/copy": "files:read",
  "fs/open": "files:read",
  "process/share": "attach:viewer",
};

async function errorOf(client: { request: (method: string, params: object) => Promise<object> }, method: MethodName) {
  const response: { error?: { message: string } } = await client.request(method, PARAMS[method]);
  return response.error?.message ?? "";
}

describe("a scope", { timeout: 600_000 }, () => {
  const methods = Object.keys(METHOD_SCOPES) as MethodName[];

  for (const group of SCOPE_GROUPS) {
    test(`of ${group} grants exactly the methods of its table`, async () => {
      await using server = await serveSigned();
      await using client = await server.connect(server.token(600, { procwire: { scope: [group] } }));
      await client.handshake({ extensions: ["attach"] });
      for (const method of methods) {
        const groups = METHOD_SCOPES[method];
        const also = ALSO_NEEDS[method];
        const isGranted = groups === null || (groups.includes(group) && (also === undefined || also === group));
        const message = await errorOf(client, method);
        assert.equal(LACKS_SCOPE.test(message), !isGranted, `${method}: ${message}`);
        assert.doesNotMatch(message, /missing field|invalid type/, method);
        if (!isGranted && !groups?.includes(group))
          assert.ok(groups && message.endsWith(groups.map((name) => `\`${name}\``).join(" or ")), message);
      }
    });
  }

  test("of one method grants that method only", async () => {
    await using server = await serveSigned();
    await using client = await server.connect(server.token(600, { procwire: { scope: ["process/list"] } }));
    await client.handshake();
    await client.call("process/list", {});
    for (const method of methods) {
      if (METHOD_SCOPES[method] === null || method === "process/list") continue;
      assert.match(await errorOf(client, method), LACKS_SCOPE, method);
    }
  });

  test("that is empty grants the handshake only; a token without a scope grants everything", async () => {
    await using server = await serveSigned();
    await using none = await server.connect(server.token(600, { procwire: { scope: [] } }));
    await none.handshake();
    await using all = await server.connect(server.token(600));
    await all.handshake();
    for (const method of methods) {
      if (METHOD_SCOPES[method] !== null) assert.match(await errorOf(none, method), LACKS_SCOPE, method);
      assert.doesNotMatch(await errorOf(all, method), LACKS_SCOPE, method);
    }
  });

  test("requires attach:driver for the role driver, and files:write to replace a file", async () => {
    await using server = await serveSigned();
    const scope = ["attach:viewer", "share", "files:read", "console"];
    await using client = await server.connect(server.token(600, { procwire: { scope } }));
    await client.handshake({ extensions: ["attach"] });
    for (const [method, params, missing] of [
      ["process/attach", { handle, role: "driver" }, "attach:driver"],
      ["process/share", { handle, role: "driver", ttlMs: 1000 }, "attach:driver"],
      ["fs/open", { handleId, path, mode: "replace" }, "files:write"],
    ] as const)
      assert.ok((await client.refused(method, params)).message.endsWith(`lacks the scope \`${missing}\``), method);
  });

  test("never grants the role operator", async () => {
    await using server = await serveSigned();
    await using other = await server.connect(server.token(600, { sub: "bob" }));
    await other.handshake();
    const scoped = { role: "operator", procwire: { scope: ["access"] } };
    await using client = await server.connect(server.token(600, scoped));
    await client.handshake();
    const { accesses } = await client.call("access/list", {});
    assert.deepEqual(
      (accesses as { principal: string }[]).map(({ principal }) => principal),
      ["jwt:alice"],
    );
  });

  test("lets a browser sign in to the console only with `console`, and never as operator", async () => {
    writeFileSync(join(scratch.path, "index.html"), "<!doctype html>");
    await using server = await serveSigned({ web: { directory: scratch.path } });
    const base = server.url.replace(/^ws/, "http");
    const signIn = (scope: string[]) => {
      const token = server.token(600, { role: "operator", procwire: { scope } });
      return fetch(`${base}/api/sign-in`, { method: "POST", body: JSON.stringify({ token }) });
    };
    const refused = await signIn(["process", "access"]);
    assert.deepEqual([refused.status, /token is invalid/.test(await refused.text())], [401, true]);
    const admitted = await signIn(["console", "process"]);
    const { secret } = (await admitted.json()) as { secret: string };
    const get = (path: string) => fetch(`${base}${path}`, { headers: { authorization: `Bearer ${secret}` } });
    assert.deepEqual(await (await get("/api/me")).json(), { id: "jwt:alice", role: "user" });
    assert.equal((await get("/api/jobs")).status, 403);
    // The connection of the console has the scope of the token.
    const protocols = ["procwire.v1", `procwire.token.${Buffer.from(secret).toString("base64url")}`];
    await using client = new WireClient(await webSocketWire(server.url, { origin: base }, protocols));
    await client.handshake();
    await client.call("process/list", {});
    for (const method of ["access/list", "network/questions", "fs/readFile"] as const)
      assert.match(await errorOf(client, method), LACKS_SCOPE, method);
  });

  test("cannot resume a session of another scope; a token without a scope can", async () => {
    await using server = await serveSigned();
    await using wide = await server.connect(server.token(600));
    await wide.handshake();
    const narrow = { procwire: { scope: ["process"] } };
    await using thief = await server.connect(server.token(600, narrow));
    const refused = await thief.refused("initialize", {
      clientName: "thief",
      resumeSessionId: wide.sessionId,
      takeOver: true,
    });
    assert.equal(refused.message, `unknown session id ${wide.sessionId}`);
    await using own = await server.connect(server.token(600, narrow));
    await own.handshake();
    await using same = await server.connect(server.token(600, narrow));
    await same.handshake({ resumeSessionId: own.sessionId, takeOver: true });
    await using owner = await server.connect(server.token(600));
    await owner.handshake({ resumeSessionId: own.sessionId, takeOver: true });
  });

  test("that is invalid makes the token invalid", async () => {
    await using server = await serveSigned();
    for (const procwire of [
      null,
      [],
      "process",
      {},
      { scope: "process" },
      { scope: ["all"] },
      { scope: [], root: "/" },
    ])
      await server.rejects(server.token(600, { procwire }));
    for (const [claim, problem] of [
      [{ scope: ["process"], roots: ["/srv"] }, /no `sandbox`: a process could leave the roots; add `sandbox/],
      [{ scope: ["attach:driver"], sandbox: "read-only" }, /remove `attach:driver`/],
      [{ scope: [], roots: [] }, /invalid `roots`/],
      [{ scope: [], roots: ["srv"] }, /invalid `roots`/],
      [{ scope: [], roots: ["/srv/../etc"] }, /invalid `roots`/],
      [{ scope: [], sandbox: "none" }, /invalid `sandbox`; expected read-only, workspace-write/],
      [{ scope: [], limits: { cpu: 1 } }, /unknown limit `cpu`/],
      [{ scope: [], limits: { wallTimeMs: 0 } }, /invalid limit `wallTimeMs`/],
    ] as const)
      assert.match(String(parseScope(claim)), problem);
  });

  test("limits each process", async () => {
    await using server = await serveSigned();
    const procwire = { scope: ["process"], limits: { outputBytes: 1000 } };
    await using client = await server.connect(server.token(600, { procwire }));
    await client.handshake();
    for (const limits of [undefined, { outputBytes: 1_000_000 }]) {
      const processId = `p${limits?.outputBytes ?? ""}`;
      await client.start(processId, ["/bin/sh", "-c", "yes"], { limits });
      assert.equal((await client.finished(processId)).exited.reason, "limit");
    }
  });
});
