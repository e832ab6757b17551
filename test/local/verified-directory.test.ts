import assert from "node:assert/strict";
import { mkdirSync, readdirSync, renameSync, rmdirSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { collectOutput } from "../../src/exec/run/collect-output.ts";
import { createLocalBackend } from "../../src/host/this-machine.ts";
import { scratchDirectory, serve } from "../support/servers/serve.ts";

const identityOf = (path: string) => {
  const { dev, ino } = statSync(path, { bigint: true });
  return `${dev}:${ino}`;
};

const pwd: Omit<StartParams, "processId" | "cwd"> = { argv: ["/bin/pwd", "-P"], env: {}, tty: false };

for (const forceFallback of [false, true]) {
  describe(`a start in one exact directory, ${forceFallback ? "without" : "with"} the addon`, () => {
    const run = async (cwd: string, cwdIdentity: string) => {
      await using backend = createLocalBackend({ forceFallback });
      await using process = await backend.start({ ...pwd, processId: "p", cwd, cwdIdentity });
      return new TextDecoder().decode((await collectOutput(process, {})).stdout);
    };

    it("runs there, and leaves no descriptor open", async () => {
      using folder = scratchDirectory();
      assert.equal(await run(folder.path, identityOf(folder.path)), `${folder.path}\n`);
      const before = readdirSync("/proc/self/fd").length;
      await run(folder.path, identityOf(folder.path));
      await assert.rejects(run(folder.path, "1:1"));
      assert.ok(readdirSync("/proc/self/fd").length <= before, "a descriptor stayed open");
    });

    it("is refused when another directory, a link, a file or nothing is there", async () => {
      using folder = scratchDirectory();
      const path = join(folder.path, "meant");
      mkdirSync(path);
      const identity = identityOf(path);
      const refused = (why: RegExp) =>
        assert.rejects(run(path, identity), (error: Error) => {
          assert.match(error.message, /^cwd `.*\/meant` is no longer the directory that was meant: /);
          assert.match(error.message, why);
          return true;
        });
      renameSync(path, join(folder.path, "moved"));
      await refused(/ENOENT/);
      symlinkSync("moved", path);
      await refused(/it leads to `.*\/moved`$/);
      renameSync(path, join(folder.path, "link"));
      mkdirSync(path);
      await refused(/another one is in its place$/);
      rmdirSync(path);
      symlinkSync("/etc/passwd", path);
      await refused(/ENOTDIR/);
    });
  });
}

describe("cwdIdentity on the wire", () => {
  it("is enforced by the server, and has to be two numbers", async () => {
    using folder = scratchDirectory();
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const start = (processId: string, cwdIdentity: unknown) =>
      client.call("process/start", { ...pwd, processId, cwd: `file://${folder.path}`, cwdIdentity });
    await start("right", identityOf(folder.path));
    await assert.rejects(start("wrong", "1:1"), /is no longer the directory that was meant: another one/);
    await assert.rejects(start("nonsense", "here"), /invalid cwdIdentity `here`, expected `device:inode`/);
  });
});
