import assert from "node:assert/strict";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { ChildSpec } from "../../src/local/child.ts";
import { spawnFallbackChild } from "../../src/local/fallback-child.ts";
import { loadAddon } from "../../src/native/addon.ts";
import { nativeSpawn } from "../../src/native/native-process.ts";
import { scratchDirectory } from "../support/servers/serve.ts";

/** A number that this program never gets to. */
const NEVER_OPEN = 100_000;

const native = loadAddon();
const ways = {
  "the native spawner": () => {
    assert.ok(native.type === "loaded");
    return nativeSpawn(native.addon);
  },
  "the native spawner on an older kernel": () => {
    assert.ok(native.type === "loaded");
    native.addon.forcePlainPaths(true);
    return nativeSpawn(native.addon);
  },
  "the native spawner under an emulator that refuses vfork": () => {
    assert.ok(native.type === "loaded");
    native.addon.forceFork(true);
    return nativeSpawn(native.addon);
  },
  "node:child_process": () => spawnFallbackChild,
};

for (const [name, way] of Object.entries(ways)) {
  describe(`descriptors passed by ${name}`, () => {
    const run = async (script: string, descriptors: readonly number[], more: Partial<ChildSpec> = {}) => {
      const output: Buffer[] = [];
      const closed = Promise.withResolvers<void>();
      const spec = {
        file: "/bin/bash",
        argv: ["bash", "-c", script],
        cwd: "/",
        env: { PATH: "/usr/bin:/bin" },
      };
      try {
        await way()(
          { ...spec, terminal: null, pipeStdin: false, descriptors, ...more },
          {
            output: (_, chunk) => output.push(Buffer.from(chunk)),
            exit: () => undefined,
            close: () => closed.resolve(),
            drain: () => undefined,
            broken: (error) => closed.reject(error),
          },
        );
        await closed.promise;
      } finally {
        if (native.type === "loaded") {
          native.addon.forcePlainPaths(false);
          native.addon.forceFork(false);
        }
      }
      return Buffer.concat(output).toString();
    };

    it("of a directory is where the program starts, whatever is at its name", async () => {
      using folder = scratchDirectory();
      const directory = openSync(folder.path, "r");
      try {
        assert.equal(await run("pwd -P", [], { cwd: "/etc", directory }), `${folder.path}\n`);
      } finally {
        closeSync(directory);
      }
    });

    it("become 3, 4 and so on, whatever their numbers were, and nothing else comes along", async () => {
      using folder = scratchDirectory();
      const opened = Array.from({ length: 12 }, (_, index) => {
        const path = join(folder.path, `${index}`);
        writeFileSync(path, `file ${index}\n`);
        return openSync(path, "r");
      });
      try {
        // Backwards, so that some stand where others have to go.
        const passed = opened.toReversed();
        const numbers = passed.map((_, index) => 3 + index);
        const script = numbers.map((number) => `cat <&${number}`).join("; ");
        const expected = passed.map((_, index) => `file ${11 - index}\n`).join("");
        assert.equal(await run(script, passed), expected);
        const list = async (descriptors: number[]) =>
          (await run("ls /proc/self/fd", descriptors)).trim().split("\n");
        const without = await list([]);
        const added = (await list(passed.slice(0, 2))).filter((fd) => !without.includes(fd));
        // Without passed descriptors, 3 is the directory that ls reads.
        assert.deepEqual(added, ["4", "5"]);
      } finally {
        for (const fd of opened) closeSync(fd);
      }
    });

    it("stay open here, for the caller to close", async () => {
      const fd = openSync("/dev/null", "r");
      await run("true", [fd]);
      closeSync(fd);
    });

    it("with a closed one among them fail the start, and nothing runs", async () => {
      await assert.rejects(run("true", [NEVER_OPEN]));
    });
  });
}
