import assert from "node:assert/strict";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ChildSpec } from "../../src/local/child.ts";
import { spawnNodeChild } from "../../src/local/fallback-child.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { nativeSpawn } from "../../src/native/native-process.ts";
import { scratchDirectory } from "../support/servers/serve.ts";

/** A descriptor number that is never open in this process. */
const NEVER_OPEN = 100_000;

const native = loadAddon();
const spawners = {
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
  "node:child_process": () => spawnNodeChild,
};

for (const [name, createSpawn] of Object.entries(spawners)) {
  describe(`a spawner with inherited descriptors: ${name}`, () => {
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
        await createSpawn()(
          { ...spec, terminal: null, pipeStdin: false, descriptors, ...more },
          {
            output: (_, chunk) => output.push(Buffer.from(chunk)),
            exit: () => undefined,
            close: () => closed.resolve(),
            drain: () => undefined,
            failed: (error) => closed.reject(error),
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

    test("starts in the directory of a descriptor, independent of `cwd`", async () => {
      using scratch = scratchDirectory();
      const directory = openSync(scratch.path, "r");
      try {
        assert.equal(await run("pwd -P", [], { cwd: "/etc", directory }), `${scratch.path}\n`);
      } finally {
        closeSync(directory);
      }
    });

    test("renumbers descriptors to 3, 4 and so on, and passes no others", async () => {
      using scratch = scratchDirectory();
      const opened = Array.from({ length: 12 }, (_, index) => {
        const path = join(scratch.path, `${index}`);
        writeFileSync(path, `file ${index}\n`);
        return openSync(path, "r");
      });
      try {
        // Reversed, so that source and target numbers overlap.
        const passed = opened.toReversed();
        const numbers = passed.map((_, index) => 3 + index);
        const script = numbers.map((number) => `cat <&${number}`).join("; ");
        const expected = passed.map((_, index) => `file ${11 - index}\n`).join("");
        assert.equal(await run(script, passed), expected);
        const list = async (descriptors: number[]) => (await run("ls /proc/self/fd", descriptors)).trim().split("\n");
        const without = await list([]);
        const added = (await list(passed.slice(0, 2))).filter((fd) => !without.includes(fd));
        // Without passed descriptors, 3 is the directory that ls reads.
        assert.deepEqual(added, ["4", "5"]);
      } finally {
        for (const fd of opened) closeSync(fd);
      }
    });

    test("leaves descriptors open in the parent", async () => {
      const fd = openSync("/dev/null", "r");
      await run("true", [fd]);
      closeSync(fd);
    });

    test("fails the start if a descriptor is closed", async () => {
      await assert.rejects(run("true", [NEVER_OPEN]));
    });
  });
}
