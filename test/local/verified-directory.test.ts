import assert from "node:assert/strict";
import { mkdirSync, readdirSync, renameSync, rmdirSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { collectOutput } from "../../src/exec/run/collect-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { scratchDirectory, serve } from "../support/servers/serve.ts";

const identityOf = (path: string) => {
  const { dev, ino } = statSync(path, { bigint: true });
  return `${dev}:${ino}`;
};

const pwd: Omit<StartParams, "processId" | "cwd"> = { argv: ["/bin/pwd", "-P"], env: {}, tty: false };

for (const forceFallback of [false, true]) {
  describe(`a start with cwdIdentity, ${forceFallback ? "without" : "with"} the addon`, () => {
    const run = async (cwd: string, cwdIdentity: string) => {
      await using backend = createLocalBackend({ forceFallback });
      await using process = await backend.start({ ...pwd, processId: "p", cwd, cwdIdentity });
      return new TextDecoder().decode((await collectOutput(process, {})).stdout);
    };

    test("runs in the verified directory and leaves no descriptor open", async () => {
      using directory = scratchDirectory();
      assert.equal(await run(directory.path, identityOf(directory.path)), `${directory.path}\n`);
      const before = readdirSync("/proc/self/fd").length;
      await run(directory.path, identityOf(directory.path));
      await assert.rejects(run(directory.path, "1:1"));
      assert.ok(readdirSync("/proc/self/fd").length <= before, "a descriptor stayed open");
    });

    test("is rejected if the path is missing, a link, a file or another directory", async () => {
      using directory = scratchDirectory();
      const path = join(directory.path, "checked");
      mkdirSync(path);
      const identity = identityOf(path);
      const rejectsWith = (why: RegExp) =>
        assert.rejects(run(path, identity), (error: Error) => {
          assert.match(error.message, /^cwd `.*\/checked`: directory changed since it was checked \(/);
          assert.match(error.message, why);
          return true;
        });
      renameSync(path, join(directory.path, "moved"));
      await rejectsWith(/ENOENT/);
      symlinkSync("moved", path);
      await rejectsWith(/it resolves to `.*\/moved`\)$/);
      renameSync(path, join(directory.path, "link"));
      mkdirSync(path);
      await rejectsWith(/expected device:inode \d+:\d+, found \d+:\d+\)$/);
      rmdirSync(path);
      symlinkSync("/etc/passwd", path);
      await rejectsWith(/ENOTDIR/);
    });
  });
}

describe("cwdIdentity of process/start", () => {
  test("is enforced by the server and must have the form `device:inode`", async () => {
    using directory = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const start = (processId: string, cwdIdentity: unknown) =>
      client.call("process/start", { ...pwd, processId, cwd: `file://${directory.path}`, cwdIdentity });
    await start("right", identityOf(directory.path));
    await assert.rejects(
      start("wrong", "1:1"),
      /directory changed since it was checked \(expected device:inode 1:1, found /,
    );
    await assert.rejects(start("nonsense", "here"), /invalid cwdIdentity `here`, expected `device:inode`/);
  });
});
