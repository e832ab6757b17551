import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { until } from "../support/system/until.ts";
import { USERS } from "../support/system/users.ts";
import {
  at,
  compile,
  intent,
  READ_ROOT,
  readOnly,
  startParams,
  WORKSPACE,
  wayOut,
  workspaceWrite,
} from "./inside.ts";

wayOut("a root swapped for a link between two commands does not open another folder", async (ground) => {
  const outer = ground.makeFolder("outer");
  const workspace = ground.makeFolder("outer/workspace");
  const victim = ground.makeFolder("victim");
  const sandbox = intent([READ_ROOT, at(outer, "write"), WORKSPACE], {
    workspaceRoots: [uriFromPath(workspace)],
  });
  await ground.script(sandbox, `mv ${workspace} ${outer}/old && ln -s ${victim} ${workspace}`);
  const params = { cwd: uriFromPath(ground.folder), sandbox };
  const { error } = await ground.client.request(
    "process/start",
    startParams("swapped", ["/usr/bin/touch", join(victim, "written")], params),
  );
  assert.match(
    error?.message ?? "",
    /sandbox intent cannot be enforced on this executor: `.*workspace` .*victim/,
  );
  assert.ok(!existsSync(join(victim, "written")));
  const write = await ground.client.refused("fs/writeFile", {
    path: uriFromPath(join(victim, "written")),
    dataBase64: "eA==",
    sandbox,
  });
  assert.match(write.message, /sandbox intent cannot be enforced/);
  assert.ok(!existsSync(join(victim, "written")));
});

wayOut(
  "a root that is swapped again and again while commands start is never another folder",
  async (ground) => {
    const outer = ground.makeFolder("outer");
    const workspace = ground.makeFolder("outer/workspace");
    const victim = ground.makeFolder("victim");
    const sandbox = intent([READ_ROOT, at(outer, "write"), WORKSPACE], {
      workspaceRoots: [uriFromPath(workspace)],
    });
    assert.equal((await ground.script(sandbox, "true")).exitCode, 0);
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
      const { result } = await ground.client.request(
        "process/start",
        startParams(id, argv, { cwd: uriFromPath(ground.folder), sandbox }),
      );
      if (result) await ground.client.finished(id);
    });
    await Promise.all(starts);
    swapping = false;
    await swaps;
    assert.ok(!existsSync(join(victim, "written")));
  },
);

wayOut("a protected place whose folder was moved away does not become unprotected", async (ground) => {
  const outer = ground.makeFolder("outer");
  ground.makeFolder("outer/workspace/.git");
  const workspace = join(outer, "workspace");
  const secret = join(ground.makeFolder("outer/conf"), "secret");
  writeFileSync(secret, "secret");
  const entries = [READ_ROOT, at(outer, "write"), at(join(workspace, ".git"), "read"), at(secret, "deny")];
  for (const [folder, path, entry] of [
    [workspace, ".git/hook", "read"],
    [join(outer, "conf"), "secret", "deny"],
  ] as const) {
    await using own = await ground.server.connect();
    await own.handshake();
    const run = async (id: string, script: string) => {
      const { result, error } = await own.request(
        "process/start",
        startParams(id, ["/bin/bash", "-c", script], { sandbox: intent(entries) }),
      );
      return result ? (await own.finished(id)).output : String(error?.message);
    };
    await run("first", `mv ${folder} ${folder}-2; mkdir ${folder}`);
    assert.ok(existsSync(`${folder}-2`), "a folder above can be moved");
    const second = await run("second", `cat ${folder}-2/${path}; echo x >${folder}-2/${path}`);
    assert.match(second, /which holds what is protected, was moved or replaced/, entry);
    assert.ok(!existsSync(join(`${workspace}-2`, ".git/hook")));
    rmSync(folder, { recursive: true });
    renameSync(`${folder}-2`, folder);
    assert.doesNotMatch(await run("third", "echo fine"), /moved/, "back in its place it is fine again");
  }
});

wayOut("files without a working directory have no workspace, least of all the root", async (ground) => {
  const path = join(ground.folder, "anywhere");
  const error = await ground.client.refused("fs/writeFile", {
    path: uriFromPath(path),
    dataBase64: "eA==",
    sandbox: intent([READ_ROOT, WORKSPACE]),
  });
  assert.match(error.message, /sandbox intent cannot be enforced on this executor/);
  assert.ok(!existsSync(path));
});

wayOut("a program planted in the child's PATH does not run outside", async (ground) => {
  const planted = ground.makeFolder("planted");
  const marker = join(ground.folder, "ran-outside");
  for (const name of ["env", "bwrap", "sh", "bash"]) {
    writeFileSync(join(planted, name), `#!/bin/sh\n/usr/bin/touch ${marker}\n`);
    chmodSync(join(planted, name), 0o755);
  }
  const env = { PATH: `${planted}:/usr/bin:/bin` };
  await ground.run(readOnly(), ["/bin/true"], { env });
  await ground.run(readOnly(), ["/bin/true"], { env, arg0: "other" });
  assert.ok(!existsSync(marker));
});

wayOut("a library planted in the child's environment is not loaded outside", async (ground) => {
  const marker = join(ground.folder, "loaded-outside");
  const library = join(ground.folder, "planted.so");
  const source = join(ground.folder, "planted.c");
  writeFileSync(
    source,
    `#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void run(void) { int fd = open("${marker}", O_CREAT | O_WRONLY, 0600); if (fd >= 0) close(fd); }\n`,
  );
  compile("-shared", "-fPIC", "-o", library, source);
  const env = { PATH: "/usr/bin:/bin", LD_PRELOAD: library, A: "1" };
  const { output } = await ground.run(readOnly(), ["/usr/bin/env"], { env });
  assert.match(output, /^A=1$/m, "it is there inside");
  assert.match(output, /^LD_PRELOAD=/m);
  assert.ok(!existsSync(marker));
});

wayOut("what is protected and missing cannot be made, and leaves nothing behind", async (ground) => {
  const workspace = ground.makeFolder("workspace");
  const protectedNames = [".git", ".codex", ".agents", "deep/er/.git"];
  const sandbox = intent(
    [READ_ROOT, WORKSPACE, ...protectedNames.map((name) => at(join(workspace, name), "read"))],
    { workspaceRoots: [uriFromPath(workspace)] },
  );
  const script = `cd ${workspace}
    mkdir -p .git/hooks && echo made; echo x >.git/config; mv .git .other && echo moved; rmdir .codex && echo removed
    ln -s /tmp .agents && echo linked; mkdir -p deep/er/.git/hooks && echo deep; echo fine >file`;
  const { output } = await ground.script(sandbox, script);
  assert.doesNotMatch(output, /^(made|moved|removed|linked|deep)$/m);
  await until("the mount points to be gone", () => readdirSync(workspace).join() === "file");
});

wayOut("a mount point stays while another command stands on it", async (ground) => {
  const workspace = ground.makeFolder("workspace");
  const sandbox = intent([READ_ROOT, WORKSPACE, at(join(workspace, ".git"), "read")], {
    workspaceRoots: [uriFromPath(workspace)],
  });
  const waits = `echo ready; read line; mkdir -p ${workspace}/.git/hooks && echo made; echo over`;
  await ground.client.start("waits", ["/bin/bash", "-c", waits], { sandbox, pipeStdin: true });
  await ground.client.outputContains("waits", "ready");
  for (let round = 0; round < 3; round++) await ground.script(sandbox, "true");
  await ground.client.write("waits", "go\n", "w1");
  const { output } = await ground.client.finished("waits");
  assert.match(output, /over/);
  assert.doesNotMatch(output, /made/);
  await until("the mount point to be gone", () => readdirSync(workspace).length === 0);
});

wayOut(
  "a place that the user himself may not fill needs nothing in its place",
  async (ground) => {
    const sandbox = intent([READ_ROOT, at("/usr/share", "write"), at("/usr/share/.git", "read")]);
    const ran = await ground.script(sandbox, "mkdir /usr/share/.git; echo over");
    assert.match(ran.output, /Permission denied\nover/);
  },
  { users: USERS.filter(({ uid }) => uid !== 0) },
);

wayOut(
  "the secret files of the server are hidden",
  async (ground) => {
    const { output } = await ground.script(
      readOnly(),
      `cat ${ground.folder}/token ${ground.folder}/operator; cat ${ground.folder}/other`,
    );
    assert.doesNotMatch(output, /a-token-of/);
    assert.match(output, /visible/);
  },
  {
    serveArgs: (folder) => {
      writeFileSync(join(folder, "token"), "a-token-of-the-server-that-is-long-enough\n");
      writeFileSync(join(folder, "operator"), "a-token-of-its-operator-that-is-long-enough\n");
      writeFileSync(join(folder, "other"), "visible\n");
      for (const name of ["token", "operator"]) chmodSync(join(folder, name), 0o644);
      const operator = ["--operator-token-file", join(folder, "operator")];
      return ["--ws-auth", "capability-token", "--ws-token-file", join(folder, "token"), ...operator];
    },
    headers: { authorization: "Bearer a-token-of-the-server-that-is-long-enough" },
  },
);

const TOKEN = "a-token-of-the-server-that-is-long-enough";

wayOut(
  "a secret file of the server that was moved with its folder is not shown to the next command",
  async (ground) => {
    const conf = join(ground.folder, "conf");
    await ground.script(workspaceWrite(ground.folder), `mv ${conf} ${conf}-2; mkdir ${conf}`);
    assert.ok(existsSync(`${conf}-2/token`));
    const start = startParams("second", ["/bin/cat", `${conf}-2/token`], { sandbox: readOnly() });
    const error = await ground.client.refused("process/start", start);
    assert.match(error.message, /which holds a file of the server, was moved or replaced/);
  },
  {
    serveArgs: (folder) => {
      mkdirSync(join(folder, "conf"));
      writeFileSync(join(folder, "conf", "token"), `${TOKEN}\n`);
      chmodSync(join(folder, "conf", "token"), 0o644);
      return ["--ws-auth", "capability-token", "--ws-token-file", join(folder, "conf", "token")];
    },
    headers: { authorization: `Bearer ${TOKEN}` },
  },
);

wayOut("capability roots are looked at from behind their walls", async (ground) => {
  const skill = join(ground.makeFolder("root"), "skills", "one");
  mkdirSync(skill, { recursive: true });
  writeFileSync(join(skill, "SKILL.md"), "---\nname: one\ndescription: d\n---\nhidden text\n");
  const root = join(ground.folder, "root");
  const ask = (sandbox: unknown) =>
    ground.client.call("capabilityRoots/discoverV1", {
      roots: [{ id: "r", path: uriFromPath(root), sandbox }],
    });
  assert.match(JSON.stringify(await ask(null)), /hidden text/);
  assert.match(JSON.stringify(await ask(readOnly())), /hidden text/);
  assert.doesNotMatch(JSON.stringify(await ask(intent([READ_ROOT, at(root, "deny")]))), /hidden text/);
});

wayOut("a managed network, which cannot be held here, is refused with walls", async (ground) => {
  for (const more of [
    { enforceManagedNetwork: true },
    { managedNetwork: { loopbackPorts: [1], allowLocalBinding: false } },
  ]) {
    const start = startParams("managed", ["/bin/true"], { ...more, sandbox: workspaceWrite(ground.folder) });
    const error = await ground.client.refused("process/start", start);
    assert.deepEqual(error.code, -32602);
    assert.match(error.message, /sandbox intent cannot be enforced on this executor/);
  }
  await ground.client.start("plain", ["/bin/true"], { enforceManagedNetwork: true });
});

wayOut("a network that is off reads as denied", async (ground) => {
  const ran = await ground.script(readOnly(), "exec 3<>/dev/tcp/192.0.2.1/80");
  assert.deepEqual([ran.exited.sandboxDenied, ran.exitCode], [true, 1]);
});
