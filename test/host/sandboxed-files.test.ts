import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { JsonRpcChannel } from "../../src/client/rpc/json-rpc-channel.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { SandboxedFiles } from "../../src/host/sandboxed-files.ts";
import { encodeBase64 } from "../../src/protocol/base64.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { MaskedPaths } from "../../src/sandbox/masked-paths.ts";
import { availableSandboxes } from "../../src/sandbox/sandbox-probe.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { memoryConnectionPair } from "../support/servers/memory-connection.ts";
import { descendantsOf } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

const skip =
  availableSandboxes().length === 0 ? "bubblewrap cannot run here: install it and allow user namespaces" : false;

let directory = "";
let server: ExecServer;
let caller: JsonRpcChannel;

before(async () => {
  // Outside of /tmp, which workspace-write makes writable.
  directory = mkdtempSync(join(process.cwd(), ".walled-files-"));
  process.once("exit", () => rmSync(directory, { recursive: true, force: true, maxRetries: 20 }));
  mkdirSync(join(directory, "workspace"));
  writeFileSync(join(directory, "outside.txt"), "untouched");
  server = new ExecServer(createLocalHost());
  const [ours, theirs] = memoryConnectionPair();
  void server.accept(theirs);
  caller = new JsonRpcChannel(ours, { onNotification: () => undefined, onClosed: () => undefined });
  await caller.call("initialize", { clientName: "test" });
  caller.initialized();
});

after(async () => {
  caller.close();
  await server.close();
});

/** The sandbox request of `codex exec -s workspace-write`, without irrelevant fields. */
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
    cwd: uriFromPath(join(directory, "workspace")),
    workspaceRoots: [uriFromPath(join(directory, "workspace"))],
    windowsSandboxLevel: "disabled",
  };
};

const write = (path: string, text: string) =>
  caller.call("fs/writeFile", {
    path: uriFromPath(path),
    dataBase64: encodeBase64(new TextEncoder().encode(text)),
    sandbox: workspaceWrite(),
  });

test("a sandboxed file server writes and reads a file of the workspace in the sandbox", { skip }, async () => {
  const path = join(directory, "workspace", "new.txt");
  await write(path, "hello");
  assert.equal(readFileSync(path, "utf8"), "hello");
  const { dataBase64 } = await caller.call("fs/readFile", {
    path: uriFromPath(path),
    sandbox: workspaceWrite(),
  });
  assert.equal(new TextDecoder().decode(dataBase64), "hello");
});

test("a sandboxed file server reads a file outside the workspace but denies writing and removing it", {
  skip,
}, async () => {
  const path = join(directory, "outside.txt");
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

test("a sandboxed file server denies writing through a link out of the workspace", { skip }, async () => {
  const { symlinkSync } = await import("node:fs");
  symlinkSync("../outside.txt", join(directory, "workspace", "link.txt"));
  await assert.rejects(write(join(directory, "workspace", "link.txt"), "changed"), {
    message: "Read-only file system (os error 30)",
  });
  assert.equal(readFileSync(join(directory, "outside.txt"), "utf8"), "untouched");
});

test("sandboxed file requests keep the order of changes", { skip }, async () => {
  const path = join(directory, "workspace", "ordered.txt");
  await Promise.all(Array.from({ length: 20 }, (_, i) => write(path, `version ${i}`)));
  assert.equal(readFileSync(path, "utf8"), "version 19");
});

test("a file request without restrictions uses no sandbox", async () => {
  const path = join(directory, "plain.txt");
  await caller.call("fs/writeFile", {
    path: uriFromPath(path),
    dataBase64: "aGk=",
    sandbox: { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" },
  });
  assert.ok(existsSync(path));
});

test("fs/open with a sandbox is rejected instead of opening the file unsandboxed", async () => {
  await assert.rejects(
    caller.call("fs/open", {
      handleId: "h",
      path: uriFromPath(join(directory, "outside.txt")),
      sandbox: workspaceWrite(),
    }),
    { code: -32602, message: "sandbox intent cannot be enforced on this executor" },
  );
});

test("sandboxed file requests are served although more sandboxes than inner servers are requested", {
  skip,
}, async () => {
  const path = uriFromPath(join(directory, "outside.txt"));
  // Inner servers of earlier tests, which exit meanwhile.
  const before = innerServers();
  // With a stopped clock no inner server ends for idleness.
  const files = new SandboxedFiles({
    maskedPaths: new MaskedPaths([]),
    cap: { perOwner: 2, total: 3 },
    clock: new ManualClock(),
  });
  try {
    const scopes = [{}, {}];
    for (let at = 0; at < 8; at++) {
      mkdirSync(join(directory, "workspace", `root-${at}`));
      const workspaceRoots = [uriFromPath(join(directory, "workspace", `root-${at}`))];
      const inside = await files.forSandbox({ ...workspaceWrite(), workspaceRoots }, scopes[at % 2] ?? {});
      const { dataBase64 } = await inside.call("fs/readFile", { path });
      assert.equal(new TextDecoder().decode(dataBase64), "untouched");
    }
    await until("those that gave way are gone", () => innerServers() - before <= 3);
  } finally {
    await files.close();
  }
  await until("all are gone", () => innerServers() <= before);
});

test("a file request after close starts no inner server", { skip }, async () => {
  const path = uriFromPath(join(directory, "outside.txt"));
  const before = innerServers();
  // Closed before the first request is handled, while the first inner server starts, and before it is used.
  for (const turns of [0, 1, 5, 50]) {
    const { sandboxedFiles } = createLocalHost();
    assert.ok(sandboxedFiles);
    const late = sandboxedFiles
      .forSandbox(workspaceWrite(), {})
      .then((inside) => inside.call("fs/readFile", { path }))
      .then(
        () => "answered",
        () => "refused",
      );
    for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
    await sandboxedFiles.close();
    await late;
    assert.ok(innerServers() <= before, `one was started after ${turns} turns`);
    await assert.rejects(sandboxedFiles.forSandbox(workspaceWrite(), {}), /server is shutting down/);
  }
});

test("a sandboxed file request beyond the limit is rejected with the number, and accepted later", {
  skip,
}, async () => {
  const path = join(directory, "workspace", "busy.txt");
  writeFileSync(path, "seen");
  const read = (at: number) => {
    const roots = [join(directory, "workspace"), join(directory, "workspace", `busy-${at}`)];
    mkdirSync(join(directory, "workspace", `busy-${at}`), { recursive: true });
    const sandbox = { ...workspaceWrite(), workspaceRoots: roots.map(uriFromPath) };
    return caller.call("fs/readFile", { path: uriFromPath(path), sandbox });
  };
  const answers = await Promise.allSettled(Array.from({ length: 5 }, (_, at) => read(at)));
  assert.deepEqual(
    answers.map(({ status }) => status),
    ["fulfilled", "fulfilled", "fulfilled", "fulfilled", "rejected"],
  );
  assert.match(
    String(answers[4]?.status === "rejected" && answers[4].reason),
    /too many sandboxes with file requests in flight: this session may have 4 at once; await the response/,
  );
  assert.equal(new TextDecoder().decode((await read(4)).dataBase64), "seen");
});

test("the sandboxes of one principal leave sandboxes for another principal", { skip }, async () => {
  const files = new SandboxedFiles({
    maskedPaths: new MaskedPaths([]),
    cap: { perOwner: 4, total: 4 },
    maxPerPrincipal: () => 1,
  });
  const path = uriFromPath(join(directory, "outside.txt"));
  const read = async (ownerId: string) =>
    (await files.forSandbox(workspaceWrite(), { ownerId })).call("fs/readFile", { path });
  const answers = await Promise.allSettled([read("alice"), read("alice"), read("bob")]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
  assert.match(String(answers[1]?.status === "rejected" && answers[1].reason), /this principal may have 1 at once/);
  await read("alice");
  await files.close();
});

/** Returns the inner servers below this process. */
function innerServers(): number {
  return descendantsOf(process.pid).filter(({ pid, state }) => {
    if (state === "Z") return false;
    try {
      const argv = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return argv[0] === process.execPath && argv.includes("stdio://");
    } catch {
      return false;
    }
  }).length;
}
