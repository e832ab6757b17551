import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ExecBackend, StartParams } from "../../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { resolveWorkdir } from "../../../src/tools/policy/resolve-workdir.ts";
import {
  findExposure,
  NOT_EXPOSED,
  noteWritableRoots,
  writableRootsOf,
} from "../../../src/tools/policy/sandbox-exposure.ts";

const EXPOSED = { home: true, workdir: true };
const WORKDIR = { home: false, workdir: true };
const HOME = { home: true, workdir: false };

/** A scratch directory with a local backend. Not below /tmp, where sandboxes of other programs leave a `.git`. */
async function withDirectory(
  use: (at: (name: string) => string, backend: ExecBackend) => Promise<void>,
): Promise<void> {
  const root = realpathSync(mkdtempSync("/var/tmp/procwire-exposure-"));
  await using backend = createLocalBackend();
  try {
    await use((name) => {
      const path = join(root, name);
      mkdirSync(path, { recursive: true });
      return path;
    }, backend);
  } finally {
    rmSync(root, { recursive: true });
  }
}

let started = 0;
const newProcessId = () => `exposure-${started++}`;

function find(backend: ExecBackend, roots: string[], workdir: string, env: Record<string, string> = {}) {
  return findExposure(backend, roots, workdir, { env: { HOME: "/nonexistent", ...env } }, newProcessId);
}

/** A backend that changes each start. */
const changing = (backend: ExecBackend, change: Partial<StartParams>): ExecBackend => ({
  list: () => backend.list(),
  start: (params) => backend.start({ ...params, ...change }),
});

describe("findExposure", () => {
  test("reports a working directory within, at or above a writable root, also through links", async () => {
    await withDirectory(async (at, backend) => {
      const [root, nested, elsewhere] = [at("a/top"), at("a/top/nested"), at("elsewhere")];
      symlinkSync(nested, join(elsewhere, "link"));
      symlinkSync(root, join(elsewhere, "root"));
      for (const workdir of [root, nested, at("a"), join(elsewhere, "link")])
        assert.deepEqual(await find(backend, [root], workdir), WORKDIR, workdir);
      assert.deepEqual(await find(backend, [join(elsewhere, "root")], nested), WORKDIR);
      assert.deepEqual(await find(backend, [root], at("a/topmost")), NOT_EXPOSED);
      assert.deepEqual(await find(backend, [], root), NOT_EXPOSED);
    });
  });

  test("reports a working directory below a writable root whose name has a line break", async () => {
    await withDirectory(async (at, backend) => {
      assert.deepEqual(await find(backend, [at("a\nb")], at("a\nb/c")), WORKDIR);
    });
  });

  test("reports a repository around the working directory that lies in a writable root", async () => {
    await withDirectory(async (at, backend) => {
      const root = at("top");
      const git = at("top/git");
      // A repository whose `.git` is a link, a file with an absolute and one with a relative path.
      symlinkSync(git, join(at("linked"), ".git"));
      symlinkSync("/nonexistent/root", join(at("dangling"), ".git"));
      writeFileSync(join(at("absolute"), ".git"), `gitdir: ${git}\n`);
      writeFileSync(join(at("relative"), ".git"), "gitdir: ../top/git\n");
      for (const name of ["linked", "absolute", "relative"])
        assert.deepEqual(await find(backend, [root], at(`${name}/deep/er`)), WORKDIR, name);
      assert.deepEqual(await find(backend, [root], at("dangling/deep")), NOT_EXPOSED);
      assert.deepEqual(await find(backend, [root], at("plain/deep")), NOT_EXPOSED);
    });
  });

  test("reports a worktree whose shared directory lies in a writable root", async () => {
    await withDirectory(async (at, backend) => {
      const root = at("root");
      for (const [name, commondir] of [
        ["absolute", root],
        ["relative", "../root"],
      ] as const) {
        const git = at(`${name}-git`);
        writeFileSync(join(git, "commondir"), `${commondir}\n`);
        writeFileSync(join(at(name), ".git"), `gitdir: ${git}\n`);
        assert.deepEqual(await find(backend, [root], at(name)), WORKDIR, name);
        writeFileSync(join(at(`${name}-2`), ".git"), `gitdir: ../${name}-git\n`);
        assert.deepEqual(await find(backend, [root], at(`${name}-2`)), WORKDIR, name);
      }
    });
  });

  test("reports directories of start-up files in a writable root", async () => {
    await withDirectory(async (at, backend) => {
      const [root, workdir] = [at("root"), at("work")];
      for (const name of ["HOME", "ZDOTDIR", "XDG_CONFIG_HOME", "BASH_ENV", "ENV"])
        assert.deepEqual(await find(backend, [root], workdir, { [name]: join(root, "x") }), HOME, name);
      // A shell expands these, or resolves them in a directory that is not known.
      for (const value of ["relative", "$OTHER/file", ":home", ":workdir", ":end"])
        assert.deepEqual(await find(backend, [root], workdir, { BASH_ENV: value }), HOME, value);
      assert.deepEqual(await find(backend, [root], workdir, { HOME: at("home") }), NOT_EXPOSED);
      // A root below the home directory does not hold its start-up files, unless it is `.config`.
      assert.deepEqual(await find(backend, [at("home/project")], workdir, { HOME: at("home") }), NOT_EXPOSED);
      assert.deepEqual(await find(backend, [at("home/.config")], workdir, { HOME: at("home") }), HOME);
    });
  });

  test("compares the roots with the last home directory and with the first working directory separately", async () => {
    await withDirectory(async (at, backend) => {
      const check = (text: string) => find(changing(backend, { argv: ["/usr/bin/printf", text] }), [], at("work"));
      assert.deepEqual(await check("=/a\\0:home\\0=/a\\0:workdir\\0:end\\0"), HOME);
      assert.deepEqual(await check("=/a\\0:home\\0:workdir\\0=/a\\0:end\\0"), WORKDIR);
    });
  });

  test("counts a check that fails or prints incomplete lists as exposed", async () => {
    await withDirectory(async (at, backend) => {
      const print = (text: string) => ({ argv: ["/usr/bin/printf", text] });
      const check = (change: Partial<StartParams>) => find(changing(backend, change), [], at("work"));
      assert.deepEqual(await check(print(":home\\0:workdir\\0:end\\0")), NOT_EXPOSED);
      for (const text of [
        "",
        ":home\\0:workdir\\0",
        ":workdir\\0:end\\0",
        ":home\\0:end\\0",
        ":workdir\\0:home\\0:end\\0",
        ":home\\0:end\\0:workdir\\0",
        ":end\\0:home\\0:workdir\\0",
      ])
        assert.deepEqual(await check(print(text)), EXPOSED, text);
      // A terminal would change line breaks in paths.
      const unlessTerminal = { argv: ["/bin/sh", "-c", "[ ! -t 1 ] && printf ':home\\0:workdir\\0:end\\0'"] };
      assert.deepEqual(await check(unlessTerminal), NOT_EXPOSED);
      const failing = { argv: ["/bin/sh", "-c", "printf ':home\\0:workdir\\0:end\\0'; exit 1"] };
      assert.deepEqual(await check(failing), EXPOSED);
      assert.deepEqual(await check({ argv: ["/nonexistent"] }), EXPOSED);
    });
  });
});

test("writable roots of all sandboxes of a host are remembered, per host", async () => {
  await withDirectory(async (_, backend) => {
    const other = changing(backend, {});
    assert.deepEqual(writableRootsOf(backend), []);
    noteWritableRoots(backend, { type: "none" });
    assert.deepEqual(writableRootsOf(backend), []);
    for (const writableRoots of [
      ["/a", "/b"],
      ["/b", "/c"],
    ])
      noteWritableRoots(backend, { type: "bubblewrap", writableRoots, network: false });
    assert.deepEqual(writableRootsOf(backend), ["/a", "/b", "/c"]);
    assert.deepEqual(writableRootsOf(other), []);
  });
});

describe("resolveWorkdir", () => {
  test("returns the path without links and the identity of the directory", async () => {
    await withDirectory(async (at, backend) => {
      const real = at("line\nbreak");
      symlinkSync(real, join(at("links"), "link"));
      const workdir = await resolveWorkdir(backend, join(at("links"), "link"), newProcessId);
      assert.equal(workdir.path, real);
      assert.match(workdir.identity ?? "", /^\d+:\d+$/);
      assert.deepEqual(await resolveWorkdir(backend, real, newProcessId), workdir);
    });
  });

  test("returns no identity if the host cannot determine it", async () => {
    await withDirectory(async (at, backend) => {
      const shell = changing(backend, { argv: ["/bin/sh", "-c", "pwd -P"] });
      assert.deepEqual(await resolveWorkdir(shell, at("a"), newProcessId), {
        path: at("a"),
        identity: undefined,
      });
    });
  });

  test("fails if the shell fails or prints no absolute path", async () => {
    await withDirectory(async (at, backend) => {
      for (const script of ["pwd; exit 1", "echo relative", "true"]) {
        const shell = changing(backend, { argv: ["/bin/sh", "-c", script] });
        await assert.rejects(resolveWorkdir(shell, at("a"), newProcessId), /cannot resolve workdir `.*a`/, script);
      }
    });
  });
});
