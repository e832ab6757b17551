import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import type { Access, SandboxPolicy, SandboxRoot } from "../../src/sandbox/bubblewrap.ts";
import { bubblewrapArguments, isStrictlyBelow } from "../../src/sandbox/bubblewrap.ts";
import { buildSandboxCommand } from "../../src/sandbox/sandbox-command.ts";
import { probeSandboxes, sandboxPrograms } from "../../src/sandbox/sandbox-probe.ts";
import { noSandbox, READ_ONLY, runSandboxed, sandboxedCommand, scratch } from "./sandbox-fixture.ts";

const options = (policy: SandboxPolicy) => bubblewrapArguments(policy, () => null);

test("bubblewrapArguments sorts mounts by depth, independent of the order of the roots", () => {
  const roots: SandboxRoot[] = [
    { path: "/w/.git", access: "read" },
    { path: "/w", access: "write" },
    { path: "/", access: "read" },
  ];
  const words = options({ ...READ_ONLY, roots });
  const directories = ["/", "/w", "/w/.git"];
  const mounts = words.filter((word, at) => /^--(ro-)?bind/.test(word) && directories.includes(words[at + 1] ?? ""));
  assert.deepEqual(mounts, ["--ro-bind", "--bind-try", "--ro-bind-try"]);
  assert.deepEqual(words, options({ ...READ_ONLY, roots: roots.toReversed() }));
});

test("bubblewrapArguments prefers deny to write and write to read at the same path", () => {
  const at = (...access: Access[]) =>
    options({
      ...READ_ONLY,
      roots: [{ path: "/", access: "read" }, ...access.map((a) => ({ path: "/w", access: a }))],
    }).join(" ");
  assert.match(at("read", "write"), /--bind-try \/w \/w/);
  assert.match(at("write", "read"), /--bind-try \/w \/w/);
  assert.match(at("deny", "write"), /--perms 0000 --tmpfs \/w /);
  assert.doesNotMatch(at("write", "deny"), / --bind-try/);
});

test("bubblewrapArguments creates a network namespace only without network access", () => {
  assert.ok(options(READ_ONLY).includes("--unshare-net"));
  assert.ok(!options({ ...READ_ONLY, network: true }).includes("--unshare-net"));
});

test("bubblewrapArguments hides the whole host without a root entry", () => {
  const words = options({ ...READ_ONLY, roots: [{ path: "/usr", access: "read" }] });
  assert.match(words.join(" "), /--tmpfs \/ .*--ro-bind-try \/usr \/usr --remount-ro \/ --chdir/);
});

test("bubblewrapArguments binds an opened root by its descriptor", () => {
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: "/w", access: "write", opened: true },
    { path: "/w/.git", access: "read", opened: true },
  ];
  const openedPaths: string[] = [];
  const words = bubblewrapArguments({ ...READ_ONLY, roots }, (path) => 10 + openedPaths.push(path));
  assert.deepEqual(openedPaths, ["/w", "/w/.git"]);
  assert.match(words.join(" "), / --bind-fd 11 \/w --ro-bind-fd 12 \/w\/\.git /);
});

test("bubblewrapArguments makes every writable directory above a protected path a mount point", () => {
  const bound = (...roots: SandboxRoot[]) => {
    const words = options({ ...READ_ONLY, roots });
    return words.flatMap((word, at) => (word === "--bind" || word === "--bind-try" ? [words[at + 2]] : []));
  };
  const root: SandboxRoot = { path: "/", access: "read" };
  const writable = (path: string): SandboxRoot => ({ path, access: "write" });
  const protectedPath: SandboxRoot = { path: "/t/a/b/w/.git", access: "read", opened: true };
  const all = ["/t", "/t/a", "/t/a/b", "/t/a/b/w"];
  assert.deepEqual(bound(root, writable("/t"), protectedPath), all);
  assert.deepEqual(bound(root, writable("/t"), writable("/t/a/b/w"), protectedPath), all);
  assert.deepEqual(bound(root, writable("/t"), writable("/t/a/b/w")), ["/t"]);
  assert.deepEqual(bound(root, writable("/t/a/b/w"), protectedPath), ["/t/a/b/w"]);
  assert.deepEqual(bound({ ...root, access: "write" }, protectedPath), ["/", ...all]);
  // Bubblewrap creates /dev itself: a bind of the host's directories must not cover it.
  const hidden: SandboxRoot = { path: "/dev/shm/secret", access: "deny", kind: "file" };
  assert.deepEqual(bound({ ...root, access: "write" }, hidden), ["/"]);
});

test("buildSandboxCommand rejects a replaced root if bubblewrap binds by path", { skip: noSandbox }, () => {
  using base = scratch();
  const programs = sandboxPrograms();
  assert.ok(programs);
  const older = { ...programs, bindsDescriptors: false };
  const root = join(base.path, "root");
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: root, access: "write", opened: true },
  ];
  const command = { argv: ["/usr/bin/touch", join(root, "made")], env: {} };
  mkdirSync(root);
  {
    using built = buildSandboxCommand({ ...READ_ONLY, roots }, command, older);
    const { file, argv, env, descriptors } = built;
    const ran = spawnSync(file, argv.slice(1), {
      env,
      stdio: ["ignore", "ignore", "ignore", ...descriptors],
    });
    assert.equal(ran.status, 0);
    assert.ok(existsSync(join(root, "made")));
  }
  renameSync(root, join(base.path, "moved"));
  symlinkSync("/etc", root);
  assert.throws(() => buildSandboxCommand({ ...READ_ONLY, roots }, command, older), /it resolves to `.etc`/);
});

test("probeSandboxes finds no sandbox in directories without bubblewrap", () => {
  using empty = scratch();
  assert.equal(probeSandboxes([empty.path]), null);
  assert.equal(probeSandboxes([]), null);
});

test("probeSandboxes detects whether bubblewrap binds descriptors, and uses an older version that binds by path", {
  skip: noSandbox || (process.getuid?.() === 0 ? false : "executables of other users are not used"),
}, () => {
  using older = scratch();
  chmodSync(older.path, 0o755);
  const real = sandboxPrograms()?.bwrap ?? "";
  // Bubblewrap reads its arguments from a file.
  const script = `#!/bin/sh\ngrep -qa -e -bind-fd "/proc/$$/fd/$2" && exit 1\nexec ${real} "$@"\n`;
  writeFileSync(join(older.path, "bwrap"), script, { mode: 0o755 });
  assert.equal(probeSandboxes(["/usr/bin", "/bin"])?.bindsDescriptors, true);
  const found = probeSandboxes([older.path, "/usr/bin", "/bin"]);
  assert.deepEqual([found?.bwrap, found?.bindsDescriptors], [join(older.path, "bwrap"), false]);
});

test("probeSandboxes skips a bubblewrap that a user other than root can change", { skip: noSandbox }, () => {
  using fake = scratch();
  writeFileSync(join(fake.path, "bwrap"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  chmodSync(join(fake.path, "bwrap"), 0o777);
  assert.ok(probeSandboxes([fake.path, "/usr/bin", "/bin"]));
});

test("probeSandboxes ignores a bubblewrap that cannot create a sandbox", () => {
  using fake = scratch();
  writeFileSync(join(fake.path, "bwrap"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  // Only a file owned by root is probed.
  if (process.getuid?.() === 0) assert.equal(probeSandboxes([fake.path, "/usr/bin", "/bin"]), null);
});

test("a bubblewrap sandbox grants the access of the nearest root", { skip: noSandbox }, () => {
  // Every directory gets a random access or none.
  const directories = ["a", "a/b", "a/b/c", "d", "d/e"];
  const access = fc.constantFrom<Access | null>("read", "write", "deny", null);
  fc.assert(
    fc.property(fc.array(access, { minLength: 5, maxLength: 5 }), (chosen) => {
      using base = scratch();
      const roots: SandboxRoot[] = [{ path: "/", access: "read" }];
      for (const [index, directory] of directories.entries()) {
        mkdirSync(join(base.path, directory));
        writeFileSync(join(base.path, directory, "file"), "content");
        const wanted = chosen[index];
        if (wanted) roots.push({ path: join(base.path, directory), access: wanted });
      }
      const script = `
        for directory in "$@"; do
          if cat "$directory/file" >/dev/null 2>&1; then printf r; else printf -; fi
          if echo x 2>/dev/null >"$directory/new"; then printf w; else printf -; fi
          echo
        done`;
      const full = directories.map((directory) => join(base.path, directory));
      const ran = runSandboxed({ ...READ_ONLY, roots }, script, full);
      const expected = full.map((directory) => EXPECTED[accessAt(directory, roots)]);
      assert.deepEqual(ran.stdout.trim().split("\n"), expected, ran.stderr);
      for (const [index, directory] of full.entries())
        assert.equal(existsSync(join(directory, "new")), expected[index] === "rw");
    }),
    { numRuns: 25 },
  );
});

const EXPECTED = { read: "r-", write: "rw", deny: "--" } as const;

function accessAt(path: string, roots: readonly SandboxRoot[]): Access {
  const above = roots.filter((root) => root.path === path || isStrictlyBelow(path, root.path));
  return above.reduce((a, b) => (a.path.length >= b.path.length ? a : b)).access;
}

test("a bubblewrap sandbox prevents reading and replacing a denied file", { skip: noSandbox }, () => {
  using base = scratch();
  const secret = join(base.path, "secret");
  writeFileSync(secret, "content");
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "write" },
    { path: secret, access: "deny", kind: "file" },
  ];
  const ran = runSandboxed({ ...READ_ONLY, roots }, 'cat "$1"; rm -f "$1"; mv "$1" "$1.x"; echo y >"$1"', [secret]);
  assert.equal(ran.stdout, "");
  assert.equal(readFileSync(secret, "utf8"), "content");
});

test("a bubblewrap sandbox provides an empty, writable private /tmp and removes it afterwards", {
  skip: noSandbox,
}, () => {
  using outside = scratch();
  const name = `procwire-private-${process.pid}`;
  const ran = runSandboxed(
    { ...READ_ONLY, tmp: "private" },
    `ls -A /tmp | wc -l; echo x >/tmp/${name} && cat /tmp/${name}`,
  );
  assert.equal(ran.stdout.replaceAll(" ", ""), "0\nx\n");
  assert.ok(!existsSync(join("/tmp", name)));
  assert.ok(existsSync(outside.path));
});

test("a bubblewrap sandbox shows a writable root of the host inside a private /tmp", { skip: noSandbox }, () => {
  using base = scratch();
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "write" },
  ];
  const ran = runSandboxed({ ...READ_ONLY, roots, tmp: "private", cwd: base.path }, "echo kept >file; pwd");
  assert.equal(ran.stdout, `${base.path}\n`);
  assert.equal(readFileSync(join(base.path, "file"), "utf8"), "kept\n");
});

test("a bubblewrap sandbox blocks connections to the host without network access", { skip: noSandbox }, async () => {
  const server = createServer((socket) => socket.end("hello")).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const address = server.address();
    assert.ok(typeof address === "object" && address);
    const talk = `require("node:net").connect(${address.port}, "127.0.0.1").on("data", (d) => process.stdout.write(d)).on("error", (e) => { console.log(e.code); process.exitCode = 3 })`;
    const run = (network: boolean) => output({ ...READ_ONLY, network }, [process.execPath, "-e", talk]);
    assert.deepEqual(await run(true), { code: 0, signal: null, stdout: "hello" });
    assert.deepEqual(await run(false), { code: 3, signal: null, stdout: "ECONNREFUSED\n" });
  } finally {
    server.close();
  }
});

test("a bubblewrap sandbox hides processes of the host", { skip: noSandbox }, () => {
  const ran = runSandboxed(
    READ_ONLY,
    `kill -0 ${process.pid} 2>/dev/null && echo reached; ls /proc | grep -c '^[0-9]'`,
  );
  assert.doesNotMatch(ran.stdout, /reached/);
  assert.ok(Number(ran.stdout) < 10, ran.stdout);
});

test("a bubblewrap sandbox drops all capabilities, so that no mount can be changed inside", { skip: noSandbox }, () => {
  using base = scratch();
  const script = `
    grep CapEff /proc/self/status
    mount -o remount,rw,bind / 2>/dev/null && echo remounted
    unshare -Um mount -o remount,rw,bind / 2>/dev/null && echo remounted
    umount "$1" 2>/dev/null && echo unmounted
    unshare -Um umount "$1" 2>/dev/null && echo unmounted
    exit 0`;
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "deny" },
  ];
  const ran = runSandboxed({ ...READ_ONLY, roots }, script, [base.path]);
  assert.match(ran.stdout, /^CapEff:\s+0+\n$/);
});

test("a bubblewrap sandbox delivers SIGINT of the process group to the command and passes its exit code on", {
  skip: noSandbox,
}, async () => {
  const script = 'trap "echo interrupted; exit 7" INT; echo ready; while :; do sleep 0.05; done';
  using command = sandboxedCommand(READ_ONLY, ["/bin/bash", "-c", script]);
  const { file, args, env, descriptors } = command;
  const stdio = ["ignore", "pipe", "inherit", ...descriptors] as const;
  const child = spawn(file, args, { detached: true, stdio: [...stdio], env });
  assert.ok(child.stdout);
  let stdout = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    if (text.includes("ready") && child.pid) process.kill(-child.pid, "SIGINT");
  });
  const [code, signal] = await once(child, "close");
  assert.deepEqual({ code, signal, stdout }, { code: 7, signal: null, stdout: "ready\ninterrupted\n" });
});

test("a bubblewrap sandbox ends when its parent dies", { skip: noSandbox }, async () => {
  using base = scratch();
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "write" },
  ];
  const marker = join(base.path, "alive");
  using command = sandboxedCommand({ ...READ_ONLY, roots }, ["/bin/sh", "-c", `exec 9>${marker}; echo up; sleep 60`]);
  const { file, args, descriptors } = command;
  const passed = descriptors.map((_, at) => 3 + at);
  // A separate parent, which SIGKILL ends without a chance to clean up.
  const parent = spawn(
    process.execPath,
    [
      "-e",
      `require("node:child_process").spawn(${JSON.stringify(file)}, ${JSON.stringify(args)}, { stdio: ["ignore", "inherit", "inherit", ...${JSON.stringify(passed)}] }); setInterval(() => {}, 1000)`,
    ],
    { stdio: ["ignore", "pipe", "inherit", ...descriptors] },
  );
  assert.ok(parent.stdout);
  parent.stdout.setEncoding("utf8");
  await once(parent.stdout, "data");
  parent.kill("SIGKILL");
  // The pipe closes when the last process that holds it exits.
  await once(parent.stdout, "close");
});

test("a bubblewrap sandbox runs an executable with an equals sign in its name", {
  skip: noSandbox,
}, async () => {
  using base = scratch();
  const program = join(base.path, "a=b");
  writeFileSync(program, '#!/bin/sh\necho "ran $1"\n', { mode: 0o755 });
  assert.deepEqual(await output(READ_ONLY, [program, "well"]), {
    code: 0,
    signal: null,
    stdout: "ran well\n",
  });
});

async function output(policy: SandboxPolicy, argv: readonly string[]) {
  using command = sandboxedCommand(policy, argv);
  const { file, args, env, descriptors } = command;
  const child = spawn(file, args, {
    stdio: ["ignore", "pipe", "inherit", ...descriptors],
    timeout: 120_000,
    env,
  });
  assert.ok(child.stdout);
  let stdout = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  const [code, signal] = await once(child, "close");
  return { code, signal, stdout };
}
