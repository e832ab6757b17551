import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { loadAddon } from "../../src/native/load-addon.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { LANDLOCK_FILES_ABI } from "../../src/sandbox/landlock-rules.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";
import { USERS } from "../support/system/users.ts";
import {
  at,
  compile,
  intent,
  READ_ROOT,
  readOnly,
  startParams,
  testEscape,
  WORKSPACE,
  workspaceWrite,
} from "./inside.ts";

testEscape("a root swapped for a link between two commands does not open another directory", async (fixture) => {
  const outer = fixture.makeDirectory("outer");
  const workspace = fixture.makeDirectory("outer/workspace");
  const victim = fixture.makeDirectory("victim");
  const sandbox = intent([READ_ROOT, at(outer, "write"), WORKSPACE], {
    workspaceRoots: [uriFromPath(workspace)],
  });
  await fixture.script(sandbox, `mv ${workspace} ${outer}/old && ln -s ${victim} ${workspace}`);
  const params = { cwd: uriFromPath(fixture.directory), sandbox };
  const { error } = await fixture.client.request(
    "process/start",
    startParams("swapped", ["/usr/bin/touch", join(victim, "written")], params),
  );
  assert.match(error?.message ?? "", /sandbox intent cannot be enforced on this executor: `.*workspace` .*victim/);
  assert.ok(!existsSync(join(victim, "written")));
  const write = await fixture.client.refused("fs/writeFile", {
    path: uriFromPath(join(victim, "written")),
    dataBase64: "eA==",
    sandbox,
  });
  assert.match(write.message, /sandbox intent cannot be enforced/);
  assert.ok(!existsSync(join(victim, "written")));
});

testEscape("a root that is swapped repeatedly while commands start never opens another directory", async (fixture) => {
  const outer = fixture.makeDirectory("outer");
  const workspace = fixture.makeDirectory("outer/workspace");
  const victim = fixture.makeDirectory("victim");
  const sandbox = intent([READ_ROOT, at(outer, "write"), WORKSPACE], {
    workspaceRoots: [uriFromPath(workspace)],
  });
  assert.equal((await fixture.script(sandbox, "true")).exitCode, 0);
  let swapping = true;
  const swaps = (async () => {
    while (swapping) {
      renameSync(workspace, join(outer, "old"));
      symlinkSync(victim, workspace);
      await new Promise((resolve) => setImmediate(resolve));
      unlinkSync(workspace);
      renameSync(join(outer, "old"), workspace);
      await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  const starts = Array.from({ length: 60 }, async (_, index) => {
    const id = `race${index}`;
    const argv = ["/usr/bin/touch", join(victim, "written")];
    const { result } = await fixture.client.request(
      "process/start",
      startParams(id, argv, { cwd: uriFromPath(fixture.directory), sandbox }),
    );
    if (result) await fixture.client.finished(id);
  });
  await Promise.all(starts);
  swapping = false;
  await swaps;
  assert.ok(!existsSync(join(victim, "written")));
});

testEscape("the parent directory of a protected path cannot be replaced in nested roots", async (fixture) => {
  const outer = fixture.makeDirectory("outer");
  fixture.makeDirectory("outer/middle");
  const workspace = fixture.makeDirectory("outer/middle/workspace");
  const config = join(fixture.makeDirectory("outer/middle/workspace/.git"), "config");
  writeFileSync(config, "clean");
  const names = [".git", ".missing"];
  const sandbox = intent(
    [READ_ROOT, at(outer, "write"), WORKSPACE, ...names.map((name) => at(join(workspace, name), "read"))],
    { workspaceRoots: [uriFromPath(workspace)] },
  );
  const script = `cd ${outer}
    echo planted >middle/workspace/.git/config
    mv middle/workspace middle/w && cp -r middle/w middle/workspace
    mv middle m && cp -r m middle
    mkdir other; mv --exchange middle other; rm -rf middle
    mkdir -p middle/workspace/.missing/hooks middle/workspace/.git && echo planted >middle/workspace/.git/config
    echo fine >middle/workspace/file; echo fine >middle/file; mv middle/file middle/workspace/moved; echo over`;
  const { output } = await fixture.script(sandbox, script);
  assert.match(output, /over\n$/);
  assert.equal(readFileSync(config, "utf8"), "clean");
  assert.deepEqual(readdirSync(outer).sort(), ["middle", "other"]);
  assert.deepEqual(readdirSync(join(outer, "middle")), ["workspace"]);
  await until("the mount points to be gone", () => readdirSync(workspace).sort().join() === ".git,file,moved");
});

testEscape("a refused start leaves no mount point behind", async (fixture) => {
  const workspace = fixture.makeDirectory("workspace");
  symlinkSync("/etc", join(workspace, "link"));
  const missing = ["a", "b/c/d/e/f/g", "h/i/j/k/l/m/n/o/p"].map((name) => at(join(workspace, name), "read"));
  const refused = [
    intent([READ_ROOT, WORKSPACE, at(join(workspace, "link"), "read"), ...missing]),
    // Neither the sandbox request nor the start names a workspace.
    intent([READ_ROOT, at(workspace, "write"), ...missing, WORKSPACE]),
    intent([READ_ROOT, at(workspace, "write"), ...missing, { ...WORKSPACE, access: "read" }]),
  ];
  for (const [index, sandbox] of refused.entries()) {
    const roots = index === 0 ? { workspaceRoots: [uriFromPath(workspace)] } : {};
    await fixture.client.refused("fs/writeFile", {
      path: uriFromPath(join(workspace, "file")),
      dataBase64: "eA==",
      sandbox: { ...sandbox, ...roots },
    });
    // The working directory of a start is a workspace, so only the first request is invalid for a start.
    if (index === 0)
      await fixture.client.refused(
        "process/start",
        startParams("refused", ["/bin/true"], { sandbox: { ...sandbox, ...roots } }),
      );
    // A mount point of the rejected request would exist by the end of this command.
    await fixture.script(readOnly(), "true");
    assert.deepEqual(readdirSync(workspace), ["link"]);
  }
});

testEscape("a protected path stays protected after its directory was moved away", async (fixture) => {
  const outer = fixture.makeDirectory("outer");
  fixture.makeDirectory("outer/workspace/.git");
  const workspace = join(outer, "workspace");
  const secret = join(fixture.makeDirectory("outer/conf"), "secret");
  writeFileSync(secret, "secret");
  const entries = [READ_ROOT, at(outer, "write"), at(join(workspace, ".git"), "read"), at(secret, "deny")];
  for (const [directory, path, entry] of [
    [workspace, ".git/hook", "read"],
    [join(outer, "conf"), "secret", "deny"],
  ] as const) {
    await using own = await fixture.server.connect();
    await own.handshake();
    const run = async (id: string, script: string) => {
      const { result, error } = await own.request(
        "process/start",
        startParams(id, ["/bin/bash", "-c", script], { sandbox: intent(entries) }),
      );
      return result ? (await own.finished(id)).output : String(error?.message);
    };
    assert.match(await run("first", `mv ${directory} ${directory}-2`), /Device or resource busy/);
    assert.ok(!existsSync(`${directory}-2`), "no command moves it");
    renameSync(directory, `${directory}-2`);
    mkdirSync(directory);
    const second = await run("second", `cat ${directory}-2/${path}; echo x >${directory}-2/${path}`);
    assert.match(second, /which contains a protected path, was moved or replaced/, entry);
    assert.ok(!existsSync(join(`${workspace}-2`, ".git/hook")));
    rmSync(directory, { recursive: true });
    renameSync(`${directory}-2`, directory);
    assert.doesNotMatch(await run("third", "echo fine"), /moved/, "back in its place it is fine again");
  }
});

testEscape("file requests without a working directory have no workspace, not even the root", async (fixture) => {
  const path = join(fixture.directory, "anywhere");
  const error = await fixture.client.refused("fs/writeFile", {
    path: uriFromPath(path),
    dataBase64: "eA==",
    sandbox: intent([READ_ROOT, WORKSPACE]),
  });
  assert.match(error.message, /sandbox intent cannot be enforced on this executor/);
  assert.ok(!existsSync(path));
});

testEscape("a program planted in the child's PATH does not run outside the sandbox", async (fixture) => {
  const planted = fixture.makeDirectory("planted");
  const marker = join(fixture.directory, "ran-outside");
  for (const name of ["env", "bwrap", "sh", "bash"]) {
    writeFileSync(join(planted, name), `#!/bin/sh\n/usr/bin/touch ${marker}\n`);
    chmodSync(join(planted, name), 0o755);
  }
  const env = { PATH: `${planted}:/usr/bin:/bin` };
  await fixture.run(readOnly(), ["/bin/true"], { env });
  await fixture.run(readOnly(), ["/bin/true"], { env, arg0: "other" });
  assert.ok(!existsSync(marker));
});

testEscape("a library planted in the child's environment is not loaded outside the sandbox", async (fixture) => {
  const marker = join(fixture.directory, "loaded-outside");
  const library = join(fixture.directory, "planted.so");
  const source = join(fixture.directory, "planted.c");
  writeFileSync(
    source,
    `#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void run(void) { int fd = open("${marker}", O_CREAT | O_WRONLY, 0600); if (fd >= 0) close(fd); }\n`,
  );
  compile("-shared", "-fPIC", "-o", library, source);
  const env = { PATH: "/usr/bin:/bin", LD_PRELOAD: library, A: "1" };
  const { output } = await fixture.run(readOnly(), ["/usr/bin/env"], { env });
  assert.match(output, /^A=1$/m, "it is there inside");
  assert.match(output, /^LD_PRELOAD=/m);
  assert.ok(!existsSync(marker));
});

testEscape("a missing protected path cannot be created, and leaves nothing behind", async (fixture) => {
  const workspace = fixture.makeDirectory("workspace");
  const protectedNames = [".git", ".codex", ".agents", "deep/er/.git"];
  const sandbox = intent([READ_ROOT, WORKSPACE, ...protectedNames.map((name) => at(join(workspace, name), "read"))], {
    workspaceRoots: [uriFromPath(workspace)],
  });
  const script = `cd ${workspace}
    mkdir -p .git/hooks && echo made; echo x >.git/config; mv .git .other && echo moved; rmdir .codex && echo removed
    ln -s /tmp .agents && echo linked; mkdir -p deep/er/.git/hooks && echo deep; echo fine >file`;
  const { output } = await fixture.script(sandbox, script);
  assert.doesNotMatch(output, /^(made|moved|removed|linked|deep)$/m);
  await until("the mount points to be gone", () => readdirSync(workspace).join() === "file");
});

testEscape("a mount point stays while another command uses it", async (fixture) => {
  const workspace = fixture.makeDirectory("workspace");
  const sandbox = intent([READ_ROOT, WORKSPACE, at(join(workspace, ".git"), "read")], {
    workspaceRoots: [uriFromPath(workspace)],
  });
  const waits = `echo ready; read line; mkdir -p ${workspace}/.git/hooks && echo made; echo over`;
  await fixture.client.start("waits", ["/bin/bash", "-c", waits], { sandbox, pipeStdin: true });
  await fixture.client.outputContains("waits", "ready");
  for (let round = 0; round < 3; round++) await fixture.script(sandbox, "true");
  await fixture.client.write("waits", "go\n", "w1");
  const { output } = await fixture.client.finished("waits");
  assert.match(output, /over/);
  assert.doesNotMatch(output, /made/);
  await until("the mount point to be gone", () => readdirSync(workspace).length === 0);
});

testEscape(
  "a path that the user may not create needs no placeholder",
  async (fixture) => {
    const sandbox = intent([READ_ROOT, at("/usr/share", "write"), at("/usr/share/.git", "read")]);
    const ran = await fixture.script(sandbox, "mkdir /usr/share/.git; echo over");
    assert.match(ran.output, /Permission denied\nover/);
  },
  { users: USERS.filter(({ uid }) => uid !== 0) },
);

testEscape(
  "the secret files of the server are hidden",
  async (fixture) => {
    const { output } = await fixture.script(
      readOnly(),
      `cat ${fixture.directory}/secrets/token ${fixture.directory}/secrets/operator; cat ${fixture.directory}/other`,
    );
    assert.doesNotMatch(output, /a-token-of/);
    assert.match(output, /visible/);
  },
  {
    serveArgs: (directory) => {
      const secrets = join(directory, "secrets");
      mkdirSync(secrets);
      writeFileSync(join(secrets, "token"), "a-token-of-the-server-that-is-long-enough\n");
      writeFileSync(join(secrets, "operator"), "a-token-of-its-operator-that-is-long-enough\n");
      writeFileSync(join(directory, "other"), "visible\n");
      for (const name of ["token", "operator"]) chmodSync(join(secrets, name), 0o644);
      const operator = ["--operator-token-file", join(secrets, "operator")];
      return ["--ws-auth", "capability-token", "--ws-token-file", join(secrets, "token"), ...operator];
    },
    headers: { authorization: "Bearer a-token-of-the-server-that-is-long-enough" },
  },
);

const TOKEN = "a-token-of-the-server-that-is-long-enough";

testEscape(
  "a secret file of the server that was moved with its directory is hidden from the next command",
  async (fixture) => {
    const conf = join(fixture.directory, "conf");
    await fixture.script(workspaceWrite(fixture.directory), `mv ${conf} ${conf}-2`);
    assert.ok(existsSync(`${conf}/token`), "no command moves it");
    renameSync(conf, `${conf}-2`);
    mkdirSync(conf);
    const start = startParams("second", ["/bin/cat", `${conf}-2/token`], { sandbox: readOnly() });
    const error = await fixture.client.refused("process/start", start);
    assert.match(error.message, /which contains a server file, was moved or replaced/);
  },
  {
    serveArgs: (directory) => {
      mkdirSync(join(directory, "conf"));
      writeFileSync(join(directory, "conf", "token"), `${TOKEN}\n`);
      chmodSync(join(directory, "conf", "token"), 0o644);
      return ["--ws-auth", "capability-token", "--ws-token-file", join(directory, "conf", "token")];
    },
    headers: { authorization: `Bearer ${TOKEN}` },
  },
);

testEscape("capability roots are read from inside their sandbox", async (fixture) => {
  const skill = join(fixture.makeDirectory("root"), "skills", "one");
  mkdirSync(skill, { recursive: true });
  writeFileSync(join(skill, "SKILL.md"), "---\nname: one\ndescription: d\n---\nhidden text\n");
  const root = join(fixture.directory, "root");
  const ask = (sandbox: unknown) =>
    fixture.client.call("capabilityRoots/discoverV1", {
      roots: [{ id: "r", path: uriFromPath(root), sandbox }],
    });
  assert.match(JSON.stringify(await ask(null)), /hidden text/);
  assert.match(JSON.stringify(await ask(readOnly())), /hidden text/);
  assert.doesNotMatch(JSON.stringify(await ask(intent([READ_ROOT, at(root, "deny")]))), /hidden text/);
});

testEscape("a disabled network is reported as denied", async (fixture) => {
  const ran = await fixture.script(readOnly(), "exec 3<>/dev/tcp/192.0.2.1/80");
  assert.deepEqual([ran.exited.sandboxDenied, ran.exitCode], [true, 1]);
});

testEscape(
  "a command writes to no named pipe outside of its roots where Landlock has rules for files",
  async (fixture, t) => {
    const native = loadAddon();
    assert.ok(native.type === "loaded", "the native addon must be built");
    const skipReason = skipUnless(
      (native.addon.landlockAbi() ?? 0) >= LANDLOCK_FILES_ABI,
      "this kernel has no Landlock with rules for files",
    );
    if (skipReason) return t.skip(skipReason);
    const [workspace, outside] = [fixture.makeDirectory("workspace"), fixture.makeDirectory("outside")];
    execFileSync("mkfifo", ["-m", "666", join(outside, "pipe"), join(workspace, "pipe")]);
    const write = (path: string) => `echo x 1<>${path} && echo written`;
    for (const sandbox of [readOnly(), workspaceWrite(workspace), workspaceWrite(workspace, { network: "enabled" })]) {
      const { output } = await fixture.script(sandbox, write(join(outside, "pipe")));
      assert.match(output, /Permission denied/);
      assert.doesNotMatch(output, /written/);
    }
    const { output } = await fixture.script(workspaceWrite(workspace), write(join(workspace, "pipe")));
    assert.match(output, /written/);
  },
);

testEscape("a command uses its roots, devices and terminal in spite of the Landlock rules", async (fixture) => {
  const workspace = fixture.makeDirectory("workspace");
  const sandbox = workspaceWrite(workspace, { privateTmp: true });
  const script = [
    `cd ${workspace} && mkdir a b && echo 1 >a/f && mv a/f b/g && ln b/g a/h && ln -s h a/i && : >b/g && rm -r a b`,
    "echo out >/dev/stdout && echo err >/dev/stderr && echo null >/dev/null",
    "echo tmp >/tmp/f && mv /tmp/f /tmp/g && echo 0 >/proc/self/oom_score_adj; echo shm >/dev/shm/f && echo done",
  ].join(" && ");
  for (const tty of [false, true]) {
    const { output } = await fixture.script(sandbox, script, { tty });
    // The server reads stdout and stderr from separate pipes, so their order is undefined.
    assert.deepEqual(output.replaceAll("\r", "").split("\n").sort(), ["", "done", "err", "out"]);
  }
  const { output } = await fixture.script(sandbox, "echo tty >/dev/tty && script -qec 'echo inner' /dev/null", {
    tty: true,
  });
  assert.match(output, /tty\s+inner/);
});
