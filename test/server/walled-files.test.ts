import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { RpcCaller } from "../../src/client/rpc-caller.ts";
import { memoryConnectionPair } from "../../src/connection/memory-connection.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { encodeBase64 } from "../../src/protocol/base64.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { availableSandboxes } from "../../src/sandbox/available.ts";
import { ExecServer } from "../../src/server/exec-server.ts";

const skip =
  availableSandboxes().length === 0
    ? "bubblewrap cannot run here: install it and allow user namespaces"
    : false;

let folder = "";
let server: ExecServer;
let caller: RpcCaller;

before(async () => {
  // Not below /tmp, which a workspace-write intent makes writable as a whole.
  folder = mkdtempSync(join(process.cwd(), ".walled-files-"));
  mkdirSync(join(folder, "workspace"));
  writeFileSync(join(folder, "outside.txt"), "untouched");
  server = new ExecServer(createLocalHost());
  const [ours, theirs] = memoryConnectionPair();
  void server.accept(theirs);
  caller = new RpcCaller(ours, { notified: () => undefined, closed: () => undefined });
  await caller.call("initialize", { clientName: "test" });
  caller.initialized();
});

after(async () => {
  caller.close();
  await server.close();
  rmSync(folder, { recursive: true });
});

/** What `codex exec -s workspace-write` sends, less what does not matter here. */
const workspaceWrite = () => {
  const special = (kind: string) => ({ type: "special", value: { kind } });
  return {
    permissions: {
      type: "managed",
      file_system: {
        type: "restricted",
        entries: [
          { path: special("root"), access: "read" },
          { path: special("project_roots"), access: "write" },
        ],
      },
      network: "restricted",
    },
    cwd: uriFromPath(join(folder, "workspace")),
    workspaceRoots: [uriFromPath(join(folder, "workspace"))],
    windowsSandboxLevel: "disabled",
  };
};

const write = (path: string, text: string) =>
  caller.call("fs/writeFile", {
    path: uriFromPath(path),
    dataBase64: encodeBase64(new TextEncoder().encode(text)),
    sandbox: workspaceWrite(),
  });

test("a file inside the workspace is written and read from behind the walls", { skip }, async () => {
  const path = join(folder, "workspace", "new.txt");
  await write(path, "hello");
  assert.equal(readFileSync(path, "utf8"), "hello");
  const { dataBase64 } = await caller.call("fs/readFile", {
    path: uriFromPath(path),
    sandbox: workspaceWrite(),
  });
  assert.equal(new TextDecoder().decode(dataBase64), "hello");
});

test("a file outside the workspace can be read but neither written nor removed", { skip }, async () => {
  const path = join(folder, "outside.txt");
  const { dataBase64 } = await caller.call("fs/readFile", {
    path: uriFromPath(path),
    sandbox: workspaceWrite(),
  });
  assert.equal(new TextDecoder().decode(dataBase64), "untouched");
  await assert.rejects(write(path, "changed"), {
    code: -32603,
    message: "Read-only file system (os error 30)",
  });
  await assert.rejects(caller.call("fs/remove", { path: uriFromPath(path), sandbox: workspaceWrite() }), {
    message: "Read-only file system (os error 30)",
  });
  assert.equal(readFileSync(path, "utf8"), "untouched");
});

test("a link out of the workspace is no way around the walls", { skip }, async () => {
  const { symlinkSync } = await import("node:fs");
  symlinkSync("../outside.txt", join(folder, "workspace", "link.txt"));
  await assert.rejects(write(join(folder, "workspace", "link.txt"), "changed"), {
    message: "Read-only file system (os error 30)",
  });
  assert.equal(readFileSync(join(folder, "outside.txt"), "utf8"), "untouched");
});

test("changes behind walls keep their order", { skip }, async () => {
  const path = join(folder, "workspace", "ordered.txt");
  await Promise.all(Array.from({ length: 20 }, (_, i) => write(path, `version ${i}`)));
  assert.equal(readFileSync(path, "utf8"), "version 19");
});

test("an intent that asks for no walls needs none", async () => {
  const path = join(folder, "plain.txt");
  await caller.call("fs/writeFile", {
    path: uriFromPath(path),
    dataBase64: "aGk=",
    sandbox: { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" },
  });
  assert.ok(existsSync(path));
});

test("an open file behind walls is refused, never opened outside them", async () => {
  await assert.rejects(
    caller.call("fs/open", {
      handleId: "h",
      path: uriFromPath(join(folder, "outside.txt")),
      sandbox: workspaceWrite(),
    }),
    { code: -32602, message: "sandbox intent cannot be enforced on this executor" },
  );
});
