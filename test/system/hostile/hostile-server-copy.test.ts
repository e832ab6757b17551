import assert from "node:assert/strict";
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { after, before, describe, type TestContext, test } from "node:test";
import { copyFiles } from "../../../src/client/copy/copy-files.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { Environment } from "../../../src/host/local-environment.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import type { ListeningServer } from "../../../src/server/listen/websocket-gateway.ts";
import { Scratch } from "../../files/scratch.ts";
import { type CliEnd, startCli } from "../../support/servers/run-cli.ts";
import {
  type ClaimedNode,
  directory,
  file,
  hostileFileServer,
  PLANTED,
  symlink,
} from "../../support/system/hostile-file-server.ts";
import { changeOwner, commandAs, USERS, type User } from "../../support/system/users.ts";

/** Runs `procwire cp` as a user, who then owns all files of the scratch directory. */
type Copy = (scratch: Scratch, url: string, ...words: string[]) => Promise<CliEnd>;

const copyAs =
  (user: User): Copy =>
  (scratch, url, ...words) => {
    changeOwner(user, scratch.root);
    return startCli(["cp", "--connect", url, ...words], { cwd: scratch.root, under: commandAs(user) }).ended;
  };

/** Copies the tree of a hostile server to `work/dest`. `work/victim` holds `mine`. */
async function copyFrom(t: TestContext, cp: Copy, root: ClaimedNode): Promise<{ scratch: Scratch; end: CliEnd }> {
  const scratch = new Scratch(t);
  scratch.file("work/victim", "mine");
  scratch.directory("outside");
  const url = await hostileFileServer(t, () => root);
  const end = await cp(scratch, url, ":/data", "work/dest");
  return { scratch, end };
}

describe("a copy from a hostile server", { timeout: 120_000 }, () => {
  const names: [string, string][] = [
    ["a name with `..`", "../victim"],
    ["a percent-encoded name with `..`", "%2E%2E%2Fvictim"],
    ["a name whose characters become `../` when cut to bytes", "\u012e\u012e\u012fvictim"],
    ["an absolute name", "/tmp/procwire-victim"],
    ["a name with a slash", "sub/victim"],
    ["a name with a NUL byte", "victim%00"],
    ["an empty name", ""],
    ["the name `.`", "."],
    ["the name `..`", ".."],
    ["the name `%2e%2E`", "%2e%2E"],
  ];
  for (const [what, name] of names) {
    test(`does not write ${what} of a file, a directory or a link outside the destination`, async (t) => {
      for (const node of [file(PLANTED), directory(["victim", file(PLANTED)]), symlink("/etc/passwd")]) {
        const scratch = new Scratch(t);
        scratch.file("work/victim", "mine");
        const url = await hostileFileServer(t, () => directory([name, node]));
        await using here = await Environment.create(null);
        await using there = await Environment.create(url);
        const copying = copyFiles(
          { files: there.files, path: "/data" },
          { files: here.files, path: scratch.path("work/dest") },
        );
        // The non-ASCII characters of this name are valid.
        if (name.startsWith("\u012e")) assert.deepEqual((await copying).problems, []);
        else await assert.rejects(copying, { code: "PROTOCOL", message: /^the server sent an invalid name/ });
        assert.equal(readFileSync(scratch.path("work/victim"), "utf8"), "mine");
        assert.deepEqual(
          readdirSync(scratch.path("work")).filter((made) => made !== "dest"),
          ["victim"],
        );
        assert.equal(existsSync("/tmp/procwire-victim"), false);
      }
    });
  }
});

for (const user of USERS) {
  const cp = copyAs(user);
  describe(`procwire cp from a hostile server, as ${user.name}`, { timeout: 120_000 }, () => {
    test("names the invalid entry of a directory below the source and copies the others", async (t) => {
      const { scratch, end } = await copyFrom(
        t,
        cp,
        directory(["good", file(PLANTED)], ["bad", directory(["../victim", file(PLANTED)])]),
      );
      assert.equal(end.code, 1);
      assert.match(end.stderr, /invalid name `\.\.\/victim` for an entry of `\/data\/bad`: .*slash/);
      assert.equal(readFileSync(scratch.path("work/dest/good"), "utf8"), PLANTED);
      assert.equal(readFileSync(scratch.path("work/victim"), "utf8"), "mine");
    });

    for (const [where, between] of [
      ["one page", []],
      ["two pages", [["b", file(PLANTED)]]],
    ] as const) {
      test(`refuses a link and a directory of one name on ${where}`, async (t) => {
        const scratch = new Scratch(t);
        const outside = scratch.directory("outside");
        const root = directory(
          ["a", symlink(outside)],
          ...between.map(([name, node]): [string, ClaimedNode] => [name, node]),
          ["a", directory(["planted", file(PLANTED)])],
        );
        const url = await hostileFileServer(t, () => root);
        const end = await cp(scratch, url, ":/data", "dest");
        assert.deepEqual(readdirSync(outside), []);
        assert.equal(end.code, 1);
        assert.match(end.stderr, /invalid name `a` for an entry of `\/data`: the name occurs twice/);
      });
    }

    test("refuses one name in two encodings", async (t) => {
      const { scratch, end } = await copyFrom(
        t,
        cp,
        directory(["a", symlink("../../outside")], ["%61", directory(["planted", file(PLANTED)])]),
      );
      assert.deepEqual(readdirSync(scratch.path("outside")), []);
      assert.match(end.stderr, /the name occurs twice/);
    });

    test("does not write through a link that the same server sent in an earlier run", async (t) => {
      const scratch = new Scratch(t);
      const outside = scratch.directory("outside");
      let root = directory(["a", symlink(outside)]);
      const url = await hostileFileServer(t, () => root);
      assert.equal((await cp(scratch, url, ":/data", "dest")).code, 0);
      assert.equal(readlinkSync(scratch.path("dest/a")), outside);
      root = directory(["a", directory(["planted", file(PLANTED)], ["deep", directory()])]);
      const end = await cp(scratch, url, ":/data", "dest");
      assert.equal(end.code, 1);
      assert.match(end.stderr, /dest\/a: a symbolic link is in the place of the directory/);
      assert.deepEqual(readdirSync(outside), []);
    });

    test("replaces a link that has the name of a file, and leaves its target alone", async (t) => {
      const scratch = new Scratch(t);
      const victim = scratch.file("victim", "mine");
      scratch.link("dest/a", victim);
      const url = await hostileFileServer(t, () => directory(["a", file(PLANTED)]));
      assert.equal((await cp(scratch, url, ":/data", "dest")).code, 0);
      assert.equal(readFileSync(victim, "utf8"), "mine");
      assert.equal(lstatSync(scratch.path("dest/a")).isFile(), true);
    });

    test("does not write through a link in the directory that is copied into", async (t) => {
      const scratch = new Scratch(t);
      const outside = scratch.directory("outside");
      scratch.link("dest/data", outside);
      const url = await hostileFileServer(t, () => directory(["planted", file(PLANTED)]));
      const end = await cp(scratch, url, ":/data", "dest/");
      assert.equal(end.code, 1);
      assert.deepEqual(readdirSync(outside), []);
    });

    test("follows a link that the user named as the destination", async (t) => {
      const scratch = new Scratch(t);
      const real = scratch.directory("real");
      scratch.link("dest", real);
      const url = await hostileFileServer(t, () => directory(["a", file(PLANTED)]));
      const end = await cp(scratch, url, ":/data", "dest");
      assert.equal(end.code, 0, end.stderr);
      assert.equal(readFileSync(scratch.path("real/a"), "utf8"), PLANTED);
      assert.equal(lstatSync(scratch.path("dest")).isSymbolicLink(), true);
    });
  });
}

describe("procwire cp and links of an honest server", { timeout: 600_000 }, () => {
  let server: ExecServer;
  let listening: ListeningServer;
  before(async () => {
    server = new ExecServer(createLocalHost());
    listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  });
  after(async () => {
    await listening.close();
    await server.close();
  });
  const honest = (t: TestContext) => ({ scratch: new Scratch(t), url: listening.url });
  const large = Buffer.alloc(700_000, "x");

  for (const user of USERS) {
    const cp = copyAs(user);
    test(`does not write through a link that a directory of the source has replaced since, as ${user.name}`, async (t) => {
      const { scratch, url } = honest(t);
      const outside = scratch.directory("outside");
      scratch.link("source/a", outside);
      assert.equal((await cp(scratch, url, `:${scratch.path("source")}`, "dest")).code, 0);
      rmSync(scratch.path("source/a"));
      scratch.file("source/a/small", "s");
      scratch.file("source/a/large", large);
      mkdirSync(scratch.path("source/a/deep"));
      const end = await cp(scratch, url, `:${scratch.path("source")}`, "dest");
      assert.equal(end.code, 1);
      assert.match(end.stderr, /a symbolic link is in the place of the directory/);
      assert.deepEqual(readdirSync(outside), []);
    });

    test(`does not upload through a link below the destination, as ${user.name}`, async (t) => {
      const { scratch, url } = honest(t);
      const outside = scratch.directory("outside");
      scratch.file("source/a/small", "s");
      scratch.file("source/a/large", large);
      scratch.file("source/b", "b");
      scratch.link("dest/a", outside);
      const end = await cp(scratch, url, "source", `:${scratch.path("dest")}`);
      assert.equal(end.code, 1);
      assert.deepEqual(readdirSync(outside), []);
      assert.equal(readFileSync(scratch.path("dest/b"), "utf8"), "b");
    });

    for (const size of ["small", "large"]) {
      test(`replaces a link on the server by a ${size} file, and leaves its target alone, as ${user.name}`, async (t) => {
        const { scratch, url } = honest(t);
        const victim = scratch.file("victim", "mine");
        scratch.file("source", size === "small" ? "new" : large);
        scratch.link("dest", victim);
        const end = await cp(scratch, url, "source", `:${scratch.path("dest")}`);
        assert.equal(end.code, 0, end.stderr);
        assert.equal(readFileSync(victim, "utf8"), "mine");
        assert.equal(lstatSync(scratch.path("dest")).isFile(), true);
      });
    }
  }

  test("refuses every method of a copy below a link with `followSymlinks: false`", async (t) => {
    const { scratch, url } = honest(t);
    const outside = scratch.directory("outside");
    scratch.link("dest/a", outside);
    scratch.file("dest/plain", "p");
    const victim = scratch.file("outside-file", "mine", 0o600);
    scratch.link("dest/to-file", victim);
    const client = await NodeExecServerClient.connectWebSocket({ url });
    t.after(() => client.close());
    const { files } = client;
    const followSymlinks = false;
    const below = scratch.path("dest/a/x");
    const notDirectory = { code: "ENOTDIR" };
    const chunk = new TextEncoder().encode(PLANTED);
    await assert.rejects(files.writeAtomic(below, { chunk }, { followSymlinks }), notDirectory);
    await assert.rejects(files.writeAtomic(below, { target: "t" }, { followSymlinks }), notDirectory);
    await assert.rejects(files.openPartial(below, { followSymlinks }), notDirectory);
    await assert.rejects(files.setAttributes(below, { mode: 0o777, followSymlinks }), notDirectory);
    await assert.rejects(files.scan(below, { followSymlinks }), notDirectory);
    const toFile = scratch.path("dest/to-file");
    await assert.rejects(files.setAttributes(toFile, { mode: 0o777, followSymlinks }), /symbolic link/);
    assert.equal(lstatSync(victim).mode & 0o777, 0o600);
    assert.equal((await files.scan(toFile, { followSymlinks })).self.type, "symlink");
    const part = await files.openPartial(scratch.path("dest/part"), { followSymlinks });
    await part.file.write(0, chunk);
    const digest = (await part.file.checksum(chunk.length)) ?? "";
    const whole = { size: chunk.length, digest, followSymlinks };
    await assert.rejects(part.file.commit(below, whole), notDirectory);
    assert.deepEqual(readdirSync(outside), []);
    await part.file.commit(scratch.path("dest/plain"), whole);
    assert.equal(readFileSync(scratch.path("dest/plain"), "utf8"), PLANTED);
  });
});
