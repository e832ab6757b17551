import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import { RpcCaller } from "../../src/client/rpc/json-rpc-channel.ts";
import { memoryConnectionPair } from "../../src/connection/memory-connection.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { BubblewrappedFiles } from "../../src/host/sandboxed-files.ts";
import { encodeBase64 } from "../../src/protocol/base64.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { HiddenFiles } from "../../src/sandbox/masked-paths.ts";
import { availableSandboxes } from "../../src/sandbox/sandbox-probe.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { descendantsOf } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

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
  process.once("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 20 }));
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

test("a link out of the workspace does not bypass the walls", { skip }, async () => {
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

test("more intents than the limit of inner servers are all answered, by few servers", {
  skip,
}, async () => {
  const path = uriFromPath(join(folder, "outside.txt"));
  // Those of the tests before, which end by themselves meanwhile.
  const before = innerServers();
  // On a stopped clock no inner server ends for being idle.
  const files = new BubblewrappedFiles({
    hidden: new HiddenFiles([]),
    cap: { each: 2, all: 3 },
    clock: new ManualClock(),
  });
  try {
    const scopes = [{}, {}];
    for (let at = 0; at < 8; at++) {
      mkdirSync(join(folder, "workspace", `root-${at}`));
      const workspaceRoots = [uriFromPath(join(folder, "workspace", `root-${at}`))];
      const inside = await files.behind({ ...workspaceWrite(), workspaceRoots }, scopes[at % 2] ?? {});
      const { dataBase64 } = await inside.call("fs/readFile", { path });
      assert.equal(new TextDecoder().decode(dataBase64), "untouched");
    }
    await until("those that gave way are gone", () => innerServers() - before <= 3);
  } finally {
    await files.close();
  }
  await until("all are gone", () => innerServers() <= before);
});

test("a server that has been closed starts nothing for a request that comes late", { skip }, async () => {
  const path = uriFromPath(join(folder, "outside.txt"));
  const before = innerServers();
  // Closed before the first request is looked at, while the first inner server starts, and before it is used.
  for (const turns of [0, 1, 5, 50]) {
    const { walledFiles } = createLocalHost();
    assert.ok(walledFiles);
    const late = walledFiles
      .behind(workspaceWrite(), {})
      .then((inside) => inside.call("fs/readFile", { path }))
      .then(
        () => "answered",
        () => "refused",
      );
    for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
    await walledFiles.close();
    await late;
    assert.ok(innerServers() <= before, `one was started after ${turns} turns`);
    await assert.rejects(walledFiles.behind(workspaceWrite(), {}), /server is shutting down/);
  }
});

test("one busy intent beyond the limit is refused with the number, and works later", {
  skip,
}, async () => {
  const path = join(folder, "workspace", "busy.txt");
  writeFileSync(path, "seen");
  const read = (at: number) => {
    const roots = [join(folder, "workspace"), join(folder, "workspace", `busy-${at}`)];
    mkdirSync(join(folder, "workspace", `busy-${at}`), { recursive: true });
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
    /too many sandboxes with file requests under way: this session may have 4 at once; await the answer/,
  );
  assert.equal(new TextDecoder().decode((await read(4)).dataBase64), "seen");
});

/** Inner servers below this program: those that run its own program behind walls. */
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
