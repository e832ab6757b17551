import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import type { Access, SandboxPolicy, SandboxRoot } from "../../src/sandbox/bubblewrap.ts";
import { bubblewrapOptions, isInside } from "../../src/sandbox/bubblewrap.ts";
import { raiseWalls } from "../../src/sandbox/sandbox-command.ts";
import { probe, sandboxPrograms } from "../../src/sandbox/sandbox-probe.ts";
import { noWalls, READ_ONLY, runBehind, scratch, walled } from "./sandbox-fixture.ts";

const options = (policy: SandboxPolicy) => bubblewrapOptions(policy, () => null);

test("mounts come in the order of their depth, whatever the order of the roots", () => {
  const roots: SandboxRoot[] = [
    { path: "/w/.git", access: "read" },
    { path: "/w", access: "write" },
    { path: "/", access: "read" },
  ];
  const words = options({ ...READ_ONLY, roots });
  const places = ["/", "/w", "/w/.git"];
  const mounts = words.filter(
    (word, at) => /^--(ro-)?bind/.test(word) && places.includes(words[at + 1] ?? ""),
  );
  assert.deepEqual(mounts, ["--ro-bind", "--bind-try", "--ro-bind-try"]);
  assert.deepEqual(words, options({ ...READ_ONLY, roots: roots.toReversed() }));
});

test("at one path deny beats write, and write beats read", () => {
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

test("the network namespace is left out only where the network is on", () => {
  assert.ok(options(READ_ONLY).includes("--unshare-net"));
  assert.ok(!options({ ...READ_ONLY, network: true }).includes("--unshare-net"));
});

test("without a root entry nothing of the host is visible", () => {
  const words = options({ ...READ_ONLY, roots: [{ path: "/usr", access: "read" }] });
  assert.match(words.join(" "), /--tmpfs \/ .*--ro-bind-try \/usr \/usr --remount-ro \/ --chdir/);
});

test("an opened root is bound as what was opened", () => {
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: "/w", access: "write", opened: true },
    { path: "/w/.git", access: "read", opened: true },
  ];
  const asked: string[] = [];
  const words = bubblewrapOptions({ ...READ_ONLY, roots }, (path) => 10 + asked.push(path));
  assert.deepEqual(asked, ["/w", "/w/.git"]);
  assert.match(words.join(" "), / --bind-fd 11 \/w --ro-bind-fd 12 \/w\/\.git /);
});

test("an older bubblewrap that binds by path gets no root that was swapped", { skip: noWalls }, () => {
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
    using walls = raiseWalls({ ...READ_ONLY, roots }, command, older);
    const { file, argv, env, descriptors } = walls;
    const ran = spawnSync(file, argv.slice(1), {
      env,
      stdio: ["ignore", "ignore", "ignore", ...descriptors],
    });
    assert.equal(ran.status, 0);
    assert.ok(existsSync(join(root, "made")));
  }
  renameSync(root, join(base.path, "moved"));
  symlinkSync("/etc", root);
  assert.throws(() => raiseWalls({ ...READ_ONLY, roots }, command, older), /leads to `.etc` now/);
});

test("a PATH without bubblewrap gives no sandbox", () => {
  using empty = scratch();
  assert.equal(probe([empty.path]), null);
  assert.equal(probe([]), null);
});

test("a bubblewrap is asked whether it binds descriptors, and an older one is used without", {
  skip: noWalls || (process.getuid?.() === 0 ? false : "another user's program is not used"),
}, () => {
  using older = scratch();
  chmodSync(older.path, 0o755);
  const real = sandboxPrograms()?.bwrap ?? "";
  // Its arguments come in a file.
  const script = `#!/bin/sh\ngrep -qa -e -bind-fd "/proc/$$/fd/$2" && exit 1\nexec ${real} "$@"\n`;
  writeFileSync(join(older.path, "bwrap"), script, { mode: 0o755 });
  assert.equal(probe(["/usr/bin", "/bin"])?.bindsDescriptors, true);
  const found = probe([older.path, "/usr/bin", "/bin"]);
  assert.deepEqual([found?.bwrap, found?.bindsDescriptors], [join(older.path, "bwrap"), false]);
});

test("a bubblewrap that a user other than root can change is skipped", { skip: noWalls }, () => {
  using fake = scratch();
  writeFileSync(join(fake.path, "bwrap"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  chmodSync(join(fake.path, "bwrap"), 0o777);
  assert.ok(probe([fake.path, "/usr/bin", "/bin"]));
});

test("a bubblewrap that cannot make walls is no sandbox", () => {
  using fake = scratch();
  writeFileSync(join(fake.path, "bwrap"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  // Owned by root, so that it is found.
  if (process.getuid?.() === 0) assert.equal(probe([fake.path, "/usr/bin", "/bin"]), null);
});

test("what may be read and written behind the walls is what the nearest root says", { skip: noWalls }, () => {
  // a, a/b, a/b/c and d: every directory gets an access of its own, or none.
  const places = ["a", "a/b", "a/b/c", "d", "d/e"];
  const access = fc.constantFrom<Access | null>("read", "write", "deny", null);
  fc.assert(
    fc.property(fc.array(access, { minLength: 5, maxLength: 5 }), (chosen) => {
      using base = scratch();
      const roots: SandboxRoot[] = [{ path: "/", access: "read" }];
      for (const [index, place] of places.entries()) {
        mkdirSync(join(base.path, place));
        writeFileSync(join(base.path, place, "file"), "content");
        const wanted = chosen[index];
        if (wanted) roots.push({ path: join(base.path, place), access: wanted });
      }
      const script = `
        for place in "$@"; do
          if cat "$place/file" >/dev/null 2>&1; then printf r; else printf -; fi
          if echo x 2>/dev/null >"$place/new"; then printf w; else printf -; fi
          echo
        done`;
      const full = places.map((place) => join(base.path, place));
      const ran = runBehind({ ...READ_ONLY, roots }, script, full);
      const expected = full.map((place) => EXPECTED[accessAt(place, roots)]);
      assert.deepEqual(ran.stdout.trim().split("\n"), expected, ran.stderr);
      for (const [index, place] of full.entries())
        assert.equal(existsSync(join(place, "new")), expected[index] === "rw");
    }),
    { numRuns: 25 },
  );
});

const EXPECTED = { read: "r-", write: "rw", deny: "--" } as const;

function accessAt(path: string, roots: readonly SandboxRoot[]): Access {
  const above = roots.filter((root) => root.path === path || isInside(path, root.path));
  return above.reduce((a, b) => (a.path.length >= b.path.length ? a : b)).access;
}

test("a denied file cannot be read, nor replaced", { skip: noWalls }, () => {
  using base = scratch();
  const secret = join(base.path, "secret");
  writeFileSync(secret, "content");
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "write" },
    { path: secret, access: "deny", kind: "file" },
  ];
  const ran = runBehind({ ...READ_ONLY, roots }, 'cat "$1"; rm -f "$1"; mv "$1" "$1.x"; echo y >"$1"', [
    secret,
  ]);
  assert.equal(ran.stdout, "");
  assert.equal(readFileSync(secret, "utf8"), "content");
});

test("a private /tmp is empty, writable and gone afterwards", { skip: noWalls }, () => {
  using outside = scratch();
  const name = `procwire-private-${process.pid}`;
  const ran = runBehind(
    { ...READ_ONLY, tmp: "private" },
    `ls -A /tmp | wc -l; echo x >/tmp/${name} && cat /tmp/${name}`,
  );
  assert.equal(ran.stdout.replaceAll(" ", ""), "0\nx\n");
  assert.ok(!existsSync(join("/tmp", name)));
  assert.ok(existsSync(outside.path));
});

test("a writable root inside a private /tmp is the real one", { skip: noWalls }, () => {
  using base = scratch();
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "write" },
  ];
  const ran = runBehind({ ...READ_ONLY, roots, tmp: "private", cwd: base.path }, "echo kept >file; pwd");
  assert.equal(ran.stdout, `${base.path}\n`);
  assert.equal(readFileSync(join(base.path, "file"), "utf8"), "kept\n");
});

test("with the network off a listener on the host cannot be reached", { skip: noWalls }, async () => {
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

test("processes outside are neither visible nor reachable", { skip: noWalls }, () => {
  const ran = runBehind(
    READ_ONLY,
    `kill -0 ${process.pid} 2>/dev/null && echo reached; ls /proc | grep -c '^[0-9]'`,
  );
  assert.doesNotMatch(ran.stdout, /reached/);
  assert.ok(Number(ran.stdout) < 10, ran.stdout);
});

test("nothing inside holds a capability, so no wall can be taken down from inside", { skip: noWalls }, () => {
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
  const ran = runBehind({ ...READ_ONLY, roots }, script, [base.path]);
  assert.match(ran.stdout, /^CapEff:\s+0+\n$/);
});

test("an interrupt to the group is for the command inside, whose exit is told", {
  skip: noWalls,
}, async () => {
  const script = 'trap "echo interrupted; exit 7" INT; echo ready; while :; do sleep 0.05; done';
  using command = walled(READ_ONLY, ["/bin/bash", "-c", script]);
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

test("what runs inside ends when its parent does", { skip: noWalls }, async () => {
  using base = scratch();
  const roots: SandboxRoot[] = [
    { path: "/", access: "read" },
    { path: base.path, access: "write" },
  ];
  const marker = join(base.path, "alive");
  using command = walled({ ...READ_ONLY, roots }, ["/bin/sh", "-c", `exec 9>${marker}; echo up; sleep 60`]);
  const { file, args, descriptors } = command;
  const passed = descriptors.map((_, at) => 3 + at);
  // A parent of its own, which is then killed without a chance to clean up.
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
  // The pipe closes only when the last process that holds it is gone.
  await once(parent.stdout, "close");
});

test("a program with an equals sign in its name is run, not taken for a variable", {
  skip: noWalls,
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
  using command = walled(policy, argv);
  const { file, args, env, descriptors } = command;
  const child = spawn(file, args, {
    stdio: ["ignore", "pipe", "inherit", ...descriptors],
    timeout: 20_000,
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
