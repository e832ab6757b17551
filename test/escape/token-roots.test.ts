/** A token with roots reaches no file outside of them: through no file method, no symbolic link and no process. */

import assert from "node:assert/strict";
import { lstatSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { serveSigned } from "../support/auth/signed-server.ts";
import { policy } from "../support/network/network-config.ts";
import { startParams } from "../support/servers/raw-connection.ts";
import { scratchDirectory, serve } from "../support/servers/serve.ts";

const SECRET = "outside-secret";

/** A server, and a client whose token has one root. A directory next to the root contains a secret. */
async function confinedClient(claim: object = { scope: ["files:read", "files:write"] }) {
  const scratch = scratchDirectory();
  const [root, outside] = [join(scratch.path, "root"), join(scratch.path, "outside")];
  for (const path of [root, outside]) mkdirSync(path);
  writeFileSync(join(outside, "secret"), SECRET);
  writeFileSync(join(root, "own"), "own");
  symlinkSync(join(outside, "secret"), join(root, "link"));
  symlinkSync(outside, join(root, "directory-link"));
  const server = await serveSigned();
  const token = server.token(600, { procwire: { ...claim, roots: [root] } });
  const client = await server.connect(token);
  await client.handshake();
  return {
    ...{ root, outside, server, client, token },
    inside: (name: string) => uriFromPath(join(root, name)),
    beyond: (name: string) => uriFromPath(join(outside, name)),
    async [Symbol.asyncDispose]() {
      await client.close();
      await server[Symbol.asyncDispose]();
      scratch[Symbol.dispose]();
    },
  };
}

const READ_OWN = Buffer.from("own").toString("base64");
const content = Buffer.from("written").toString("base64");

describe("a token with roots", { timeout: 600_000 }, () => {
  test("reads, writes, lists and opens files below them", async () => {
    await using set = await confinedClient();
    const { client, inside, root } = set;
    assert.equal((await client.call("fs/readFile", { path: inside("own") })).dataBase64, READ_OWN);
    await client.call("fs/writeFile", { path: inside("new"), dataBase64: content });
    await client.call("fs/writeAtomic", { path: inside("atomic"), chunk: content });
    await client.call("fs/copy", { sourcePath: inside("new"), destinationPath: inside("copy"), recursive: false });
    for (const name of ["new", "atomic", "copy"]) assert.equal(readFileSync(join(root, name), "utf8"), "written");
    await client.call("fs/open", { handleId: "h", path: inside("own") });
    assert.equal((await client.call("fs/readBlock", { handleId: "h", offset: 0, len: 10 })).chunk, READ_OWN);
    await client.call("fs/close", { handleId: "h" });
    await client.call("fs/remove", { path: inside("copy") });
  });

  test("reaches no other file by its path, or through a symbolic link below them", async () => {
    await using set = await confinedClient();
    const { client, inside, beyond } = set;
    const walk = {
      ...{ maxDepth: 4, maxDirectories: 100, maxEntries: 100 },
      ...{ followDirectorySymlinks: true, pruneHiddenDirectories: false },
    };
    for (const path of [
      beyond("secret"),
      inside("link"),
      inside("directory-link/secret"),
      inside("../outside/secret"),
    ]) {
      for (const [method, params] of [
        ["fs/readFile", { path }],
        ["fs/writeFile", { path, dataBase64: content }],
        ["fs/canonicalize", { path }],
        ["fs/open", { handleId: "h", path }],
        ["fs/open", { handleId: "h", path, mode: "replace" }],
        ["fs/setAttributes", { path, mode: 0o777 }],
      ] as const) {
        const { error } = await client.request(method, params);
        assert.ok(error, `${method} ${path}`);
        assert.doesNotMatch(error.message, /internal error|lacks the scope/, `${method} ${path}`);
      }
      // A copy of a link is a link.
      const copy = { sourcePath: path, destinationPath: inside("stolen"), recursive: false };
      const { error } = await client.request("fs/copy", copy);
      assert.ok(error || lstatSync(join(set.root, "stolen")).isSymbolicLink(), path);
    }
    for (const path of [beyond(""), inside("directory-link")]) {
      for (const [method, params] of [
        ["fs/readDirectory", { path }],
        ["fs/scan", { path, followLinks: true }],
        ["fs/walk", { path, options: walk }],
        ["fs/writeAtomic", { path: `${path}/new`, chunk: content }],
        ["fs/openPartial", { handleId: "p", path: `${path}/new` }],
        ["fs/createDirectory", { path: `${path}/new`, recursive: true }],
      ] as const) {
        const response = await client.request(method, params);
        assert.ok(!JSON.stringify(response).includes("secret"), `${method} ${path}: ${JSON.stringify(response)}`);
      }
    }
    assert.equal(readFileSync(join(set.outside, "secret"), "utf8"), SECRET);
    const walked = await client.call("fs/walk", { path: inside(""), options: walk });
    assert.ok(!JSON.stringify(walked).includes("/secret"), JSON.stringify(walked));
    assert.match(
      (await client.refused("fs/readFile", { path: beyond("secret") })).message,
      /outside the roots of the token/,
    );
    const watch = { watchId: 1, missing: [beyond("x")] };
    assert.match(
      (await client.refused("fs/watchMissing", watch)).message,
      /has roots, which the method cannot enforce/,
    );
  });

  test("copies files with the client library, and none from outside", async () => {
    await using set = await confinedClient();
    await using client = await NodeExecServerClient.connectWebSocket({ url: set.server.url, authToken: set.token });
    const large = Buffer.alloc(3_000_000, "x");
    await client.files.writeFile(join(set.root, "large"), large);
    assert.deepEqual(Buffer.from(await client.files.readFile(join(set.root, "large"))), large);
    await assert.rejects(client.files.readFile(join(set.outside, "secret")), /outside the roots/);
    await assert.rejects(client.files.readFile(join(set.root, "link")));
  });
});

describe("a token that requires a sandbox", { timeout: 600_000 }, () => {
  const entry = (path: object, access: string) => ({ path, access });
  const MINIMAL = entry({ type: "special", value: { kind: "minimal" } }, "read");
  const WHOLE = entry({ type: "special", value: { kind: "root" } }, "read");
  const at = (path: string, access: string) => entry({ type: "path", path: uriFromPath(path) }, access);
  const sandbox = (entries: object[], network = "restricted") => ({
    permissions: { type: "managed", file_system: { type: "restricted", entries }, network },
    windowsSandboxLevel: "disabled",
  });
  const claim = { scope: ["process"], sandbox: "workspace-write" };

  test("starts processes within its roots", async () => {
    await using set = await confinedClient(claim);
    const { client, root, outside } = set;
    const script = `cat own; echo done > result; cat ${outside}/secret link directory-link/secret; echo x > ${outside}/new`;
    await client.start("p", ["/bin/sh", "-c", script], {
      cwd: uriFromPath(root),
      sandbox: sandbox([MINIMAL, at(root, "write")]),
    });
    const { output } = await client.finished("p");
    assert.match(output, /^own/);
    assert.ok(!output.includes(SECRET), output);
    assert.equal(readFileSync(join(root, "result"), "utf8"), "done\n");
    assert.throws(() => readFileSync(join(outside, "new")));
  });

  test("starts no process without the sandbox, or with less", async () => {
    await using set = await confinedClient(claim);
    const { client, root, outside } = set;
    const link = join(root, "directory-link");
    for (const [problem, cwd, request] of [
      [/the start requests no sandbox/, root, undefined],
      [/has no restrictions/, root, { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" }],
      [/`\/` is readable/, root, sandbox([WHOLE, at(root, "write")])],
      [/outside` is readable/, root, sandbox([MINIMAL, at(root, "write"), at(outside, "read")])],
      [/outside` is writable/, root, sandbox([MINIMAL, at(root, "write"), at(outside, "write")])],
      [/outside` is (?:read|writ)able|symbolic link/, root, sandbox([MINIMAL, at(link, "write")])],
      [/working directory `.*` is outside/, outside, sandbox([MINIMAL, at(root, "write")])],
      [/it has network access/, root, sandbox([MINIMAL, at(root, "write")], "enabled")],
    ] as const) {
      const params = startParams("p", ["/bin/true"], { cwd: uriFromPath(cwd), sandbox: request });
      assert.match((await client.refused("process/start", params)).message, problem);
    }
    const v0 = { argv: ["true"], cwd: root, env: {}, tty: false };
    assert.match((await client.refused("command/exec", v0)).message, /requires a sandbox; use process\/start/);
  });

  test("starts no process with a managed network, which reaches hosts that the client chooses", async () => {
    const network = { networkProxy: { proxy: policy({ domains: { "*": "allow" } }) }, enforceManagedNetwork: true };
    const params = (root: string) => ({ cwd: uriFromPath(root), sandbox: sandbox([MINIMAL, at(root, "write")]) });
    await using set = await confinedClient(claim);
    const start = startParams("p", ["/bin/true"], { ...params(set.root), ...network });
    assert.match((await set.client.refused("process/start", start)).message, /it has network access/);
    // Without the enforcement, the sandbox has no network, so the process does not reach its proxy.
    await set.client.start("q", ["/bin/sh", "-c", 'curl -sS -m 5 "$HTTP_PROXY" 2>&1; echo status $?'], {
      ...params(set.root),
      networkProxy: network.networkProxy,
    });
    assert.match((await set.client.finished("q")).output, /ouldn't connect|Could not connect|status (?:7|127)/);
    await using wide = await confinedClient({ scope: ["process"], sandbox: "workspace-write+network" });
    await wide.client.start("p", ["/bin/echo", "ran"], { ...params(wide.root), ...network });
    assert.equal((await wide.client.finished("p")).output, "ran\n");
  });

  test("of mode read-only starts no process that can write", async () => {
    await using set = await confinedClient({ scope: ["process"], sandbox: "read-only" });
    const { client, root } = set;
    const params = (access: string) => ({ cwd: uriFromPath(root), sandbox: sandbox([MINIMAL, at(root, access)]) });
    const refused = await client.refused("process/start", startParams("p", ["/bin/true"], params("write")));
    assert.match(refused.message, /a sandbox of at least read-only within `.*` is required: `.*root` is writable/);
    await client.start("q", ["/bin/cat", "own"], params("read"));
    assert.equal((await client.finished("q")).output, "own");
  });

  test("is also a flag of the server, for every client", async () => {
    await using server = await serve("--require-sandbox", "workspace-write");
    await using client = await server.connect();
    await client.handshake();
    const scratch = scratchDirectory();
    const cwd = uriFromPath(scratch.path);
    assert.match(
      (await client.refused("process/start", startParams("p", ["/bin/true"], { cwd }))).message,
      /^a sandbox of at least workspace-write is required: the start requests no sandbox$/,
    );
    const v0 = { argv: ["true"], cwd: "/tmp", env: {}, tty: false };
    assert.match((await client.refused("command/exec", v0)).message, /a sandbox of at least workspace-write/);
    await client.start("p", ["/bin/echo", "ran"], { cwd, sandbox: sandbox([WHOLE, at(scratch.path, "write")]) });
    assert.equal((await client.finished("p")).output, "ran\n");
    scratch[Symbol.dispose]();
  });
});
