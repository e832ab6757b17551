import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..", "..");
const addon = join(root, "native", "build", "asan", "spawner.node");

function sanitizerLibrary(): string | null {
  try {
    const path = execFileSync(process.env.CXX ?? "c++", ["-print-file-name=libasan.so"], {
      encoding: "utf8",
    }).trim();
    return existsSync(path) ? path : null;
  } catch {
    return null;
  }
}

const library = process.platform === "linux" ? sanitizerLibrary() : null;

describe("the addon under AddressSanitizer", () => {
  it("is compiled without a warning and goes through all its paths without a memory error", {
    skip: library ? false : "THE ADDON IS NOT CHECKED FOR MEMORY ERRORS: this compiler has no libasan",
  }, async () => {
    await run(process.execPath, [join(root, "native", "build.mjs"), "--asan"]);
    const { stdout, stderr } = await run(
      process.execPath,
      [join(root, "test", "fixtures", "native", "churn.ts")],
      {
        env: {
          ...process.env,
          LD_PRELOAD: library ?? "",
          // Node itself never frees everything; what counts here is use after free and out of bounds.
          ASAN_OPTIONS: "detect_leaks=0",
          PROCWIRE_NATIVE_SPAWNER: addon,
        },
      },
    );
    assert.equal(stdout.trim(), "churned");
    assert.doesNotMatch(stderr, /AddressSanitizer/);
  });
});
