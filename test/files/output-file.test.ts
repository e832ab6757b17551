import assert from "node:assert/strict";
import {
  chmodSync,
  closeSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeSync,
} from "node:fs";
import { suite, test } from "node:test";
import { OutputDirectory } from "../../src/files/output-directory.ts";
import { OutputFile } from "../../src/files/output-file.ts";
import { Scratch } from "./scratch.ts";

suite("an output file", () => {
  test("replaces a file atomically and keeps its permissions", async (t) => {
    const scratch = new Scratch(t);
    const path = scratch.file("out", "old", 0o640);
    chmodSync(path, 0o640);
    await using file = await OutputFile.open(path);
    await file.write(["new", " text"]);
    assert.equal(readFileSync(path, "utf8"), "new text");
    assert.equal(statSync(path).mode & 0o777, 0o640);
    assert.deepEqual(readdirSync(scratch.root), ["out"]);
  });

  test("keeps the old file and leaves no temporary file if the content fails", async (t) => {
    const scratch = new Scratch(t);
    const path = scratch.file("out", "old");
    await using file = await OutputFile.open(path);
    const texts = function* () {
      yield "half";
      throw new Error("no more");
    };
    await assert.rejects(file.write(texts()), /no more/);
    assert.equal(readFileSync(path, "utf8"), "old");
    assert.deepEqual(readdirSync(scratch.root), ["out"]);
  });

  test("rejects a link, a directory and a missing parent on open", async (t) => {
    const scratch = new Scratch(t);
    scratch.link("link", scratch.file("victim", "kept"));
    scratch.link("null", "/dev/null");
    scratch.directory("folder");
    const opened = (name: string) => OutputFile.open(scratch.path(name));
    await assert.rejects(opened("link"), /^Error: write \S+\/link: a symbolic link has this name; remove the/);
    await assert.rejects(opened("null"), /a symbolic link has this name/);
    await assert.rejects(opened("folder"), /folder: it is a directory; name a file/);
    await assert.rejects(opened("none/out"), /^Error: write \S+\/none: ENOENT: no such file or directory$/);
    await using made = await OutputFile.open(scratch.path("none/out"), { makeParents: true });
    await made.write([""]);
    assert.equal(readFileSync(scratch.path("none/out"), "utf8"), "");
  });

  test("shows a growing file at once and follows no later link", async (t) => {
    const scratch = new Scratch(t);
    const victim = scratch.file("victim", "kept");
    await using file = await OutputFile.open(scratch.path("log"));
    await using growing = await file.start();
    growing.write("one\n");
    assert.equal(readFileSync(scratch.path("log"), "utf8"), "one\n");
    renameSync(scratch.path("log"), scratch.path("moved"));
    symlinkSync(victim, scratch.path("log"));
    growing.write("two\n");
    assert.equal(readFileSync(scratch.path("moved"), "utf8"), "one\ntwo\n");
    assert.equal(readFileSync(victim, "utf8"), "kept");
  });

  test("passes the real path of the directory to judgeDirectory", async (t) => {
    const scratch = new Scratch(t);
    scratch.link("here", scratch.directory("real"));
    scratch.fifo("real/pipe");
    const judged: string[] = [];
    const judgeDirectory = async (directory: string) => {
      judged.push(directory);
      return judged.length > 1 ? null : "no";
    };
    const open = (name: string) => OutputFile.open(scratch.path(name), { judgeDirectory });
    await assert.rejects(open("here/out"), /^Error: write .*out: no$/);
    await assert.rejects(open("here/pipe"), /it is not a regular file/);
    assert.deepEqual(judged, [scratch.path("real"), scratch.path("real")]);
  });

  test("writes to a device", async () => {
    await using file = await OutputFile.open("/dev/null");
    await file.write(["gone"]);
  });
});

for (const hasDescriptorPaths of [true, false]) {
  suite(`an output directory ${hasDescriptorPaths ? "with" : "without"} /proc`, () => {
    test("replaces, appends to and removes files", async (t) => {
      const scratch = new Scratch(t);
      using directory = OutputDirectory.open(scratch.path("a/b"), { make: true, hasDescriptorPaths });
      await directory.replace("file", "one");
      await directory.replace("file", "two");
      assert.equal(readFileSync(scratch.path("a/b/file"), "utf8"), "two");
      const fd = directory.openAppend("file");
      writeSync(fd, "!");
      closeSync(fd);
      assert.equal(readFileSync(scratch.path("a/b/file"), "utf8"), "two!");
      directory.remove("file");
      directory.remove("file");
      assert.deepEqual(readdirSync(scratch.path("a/b")), []);
      assert.throws(() => directory.entryPath("../x"), /`..\/x` is not a file name/);
    });

    test("neither follows nor replaces a link, and does not block on a pipe without a reader", async (t) => {
      const scratch = new Scratch(t);
      const victim = scratch.file("victim", "kept");
      scratch.link("link", victim);
      scratch.fifo("pipe");
      using directory = OutputDirectory.open(scratch.root, { hasDescriptorPaths });
      assert.throws(() => directory.openAppend("link"), /link: a symbolic link has this name/);
      assert.throws(() => directory.openAppend("pipe"), /pipe: it is not a regular file/);
      await assert.rejects(directory.replace("link", "x"), /link: a symbolic link has this name/);
      assert.equal(readFileSync(victim, "utf8"), "kept");
      assert.deepEqual(readdirSync(scratch.root).sort(), ["link", "pipe", "victim"]);
    });

    test("writes nothing to a directory that replaced the opened directory", async (t) => {
      const scratch = new Scratch(t);
      scratch.directory("out");
      using directory = OutputDirectory.open(scratch.path("out"), { hasDescriptorPaths });
      renameSync(scratch.path("out"), scratch.path("moved"));
      mkdirSync(scratch.path("victim"));
      symlinkSync(scratch.path("victim"), scratch.path("out"));
      const written = directory.replace("file", "text");
      if (hasDescriptorPaths) await written;
      else await assert.rejects(written, /the directory was moved or replaced; run the command again/);
      assert.deepEqual(readdirSync(scratch.path("victim")), []);
      assert.deepEqual(readdirSync(scratch.path("moved")), hasDescriptorPaths ? ["file"] : []);
      assert.equal(directory.hasMoved, true);
    });
  });
}
