import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { scratchDirectory } from "../support/servers/serve.ts";

const root = join(import.meta.dirname, "..", "..");
const BUILT_AT = new Date("2026-01-01T00:00:00Z");
const EARLIER = new Date(BUILT_AT.getTime() - 1000);
const LATER = new Date(BUILT_AT.getTime() + 1);

/**
 * A temporary package with the launcher. Its bundle and its sources report which of them ran, and with which arguments.
 */
class Package implements Disposable {
  readonly #scratch = scratchDirectory();
  readonly path = join(this.#scratch.path, "a package");

  constructor() {
    cpSync(join(root, "bin"), join(this.path, "bin"), { recursive: true });
    const say = (what: string) => `process.stdout.write(["${what}", ...process.argv.slice(1)].join(" "));\n`;
    this.write("dist/bin/procwire.cjs", say("bundle"));
    this.write("dist/bin/procwire.cjs.sources", "src/cli/procwire.ts\nsrc/cli/deep/er/part.ts");
    this.write("dist/bin/ps.cjs.sources", "src/cli/ps.ts");
    this.write("dist/stamp", "");
    this.write("src/cli/procwire.ts", say("sources"));
    this.write("src/cli/deep/er/part.ts", "");
    this.write("src/cli/ps.ts", "");
    this.write("package.json", '{"type":"module"}');
    mkdirSync(join(this.path, "node_modules/.bin"), { recursive: true });
    symlinkSync(process.execPath, join(this.path, "node_modules/.bin/node"));
    this.touch("dist/stamp", BUILT_AT);
    for (const path of ["src/cli/procwire.ts", "src/cli/ps.ts"]) this.touch(path, EARLIER);
    this.touch("src/cli/deep/er/part.ts", BUILT_AT);
  }

  write(path: string, text: string): void {
    mkdirSync(dirname(join(this.path, path)), { recursive: true });
    writeFileSync(join(this.path, path), text);
  }

  touch(path: string, time: Date): void {
    utimesSync(join(this.path, path), time, time);
  }

  remove(path: string): void {
    rmSync(join(this.path, path), { recursive: true });
  }

  /** Runs the bundle like the build, which stores the code cache. */
  build(...args: string[]): void {
    const env = { ...process.env, PROCWIRE_KEEP_COMPILED: "1", PROCWIRE_CONNECT: "" };
    spawnSync(process.execPath, [join(this.path, "bin/main.cjs"), "dist/bin/procwire.cjs", ...args], { env });
  }

  run(
    options: { launcher?: string; cwd?: string; path?: string } = {},
    ...args: string[]
  ): { output: string; errors: string } {
    const ran = spawnSync(options.launcher ?? join(this.path, "bin/procwire"), args, {
      encoding: "utf8",
      cwd: options.cwd ?? "/",
      env: { ...process.env, ...(options.path !== undefined && { PATH: options.path }) },
    });
    return { output: ran.stdout, errors: ran.stderr };
  }

  [Symbol.dispose](): void {
    this.#scratch[Symbol.dispose]();
  }
}

describe("the launcher", () => {
  test("runs the bundle until one of its sources is newer or missing", () => {
    using place = new Package();
    assert.equal(place.run().output, "bundle procwire");
    place.touch("src/cli/deep/er/part.ts", LATER);
    assert.equal(place.run().output, "sources procwire");
    place.remove("src/cli/deep");
    assert.equal(place.run().output, "sources procwire");
  });

  test("compares the sources of the command, or of all commands for another name", () => {
    using place = new Package();
    place.write("dist/bin/kill.cjs.sources", "src/cli/deep/er/part.ts");
    place.touch("src/cli/ps.ts", LATER);
    assert.equal(place.run({}, "kill").output, "bundle procwire kill");
    assert.equal(place.run({}, "ps").output, "sources procwire ps");
    assert.equal(place.run({}, "help", "ps").output, "sources procwire help ps");
  });

  test("runs the sources if the bundle, its list of sources or the stamp is missing", () => {
    for (const missing of ["dist/bin/procwire.cjs", "dist/bin/procwire.cjs.sources", "dist/stamp"]) {
      using place = new Package();
      place.remove(missing);
      assert.equal(place.run().output, "sources procwire", missing);
    }
  });

  test("runs the bundle of an installed package, which has no sources and no stamp to compare", () => {
    using place = new Package();
    place.remove("src");
    place.remove("dist/stamp");
    assert.equal(place.run().output, "bundle procwire");
  });

  test("is found through symbolic links, and from any directory", () => {
    using place = new Package();
    const links = join(place.path, "links");
    mkdirSync(links);
    symlinkSync("../bin/procwire", join(links, "first"));
    symlinkSync("first", join(links, "second"));
    assert.equal(place.run({ launcher: join(links, "second") }, "a b", "").output, "bundle procwire a b ");
    assert.equal(place.run({ launcher: "bin/procwire", cwd: place.path }).output, "bundle procwire");
    assert.equal(place.run({ launcher: "./procwire", cwd: join(place.path, "bin") }).output, "bundle procwire");
  });

  test("uses the Node on PATH if the package contains none, and reports an error if PATH has no Node either", () => {
    using place = new Package();
    place.remove("node_modules");
    place.remove("src");
    assert.equal(place.run({ path: dirname(process.execPath) }).output, "bundle procwire");
    const { output, errors } = place.run({ path: place.path });
    assert.equal(output, "");
    assert.equal(errors, "procwire: needs Node 24 or newer on PATH; none was found\n");
  });

  test("starts a server below the watchdog of the local build, otherwise below that of the platform package", () => {
    const platform = `@procwire/linux-${process.arch}`;
    const places = [
      "native/build",
      `node_modules/${platform}`,
      `node_modules/${platform}-musl`,
      `../${platform}`,
      `../${platform}-musl`,
    ];
    using place = new Package();
    for (const location of places) {
      place.write(`${location}/watchdog`, `#!/bin/sh\necho "watchdog of ${location}: $*"\n`);
      chmodSync(join(place.path, location, "watchdog"), 0o755);
    }
    for (const location of places) {
      assert.equal(place.run({}, "run").output, "bundle procwire run");
      assert.match(
        place.run({}, "serve").output,
        new RegExp(
          `^watchdog of ${location}: .* --max-semi-space-size=16.* .*/bin/main.cjs dist/bin/procwire.cjs serve\n$`,
        ),
      );
      place.remove(`${location}/watchdog`);
    }
  });

  test("limits the heap of a server by the lowest memory limit of its cgroup and the ancestors", () => {
    using place = new Package();
    // The function of the launcher, with other files of the kernel.
    const [body = ""] = /^set_heap_flags\(\) \{.*?^\}$/ms.exec(readFileSync(join(root, "bin/procwire"), "utf8")) ?? [];
    const script = body.replaceAll("/sys/fs/cgroup", "$PWD/cgroup").replace("/proc/self/cgroup", "$PWD/self");
    const flags = (limits: Record<string, string>, options = "") => {
      place.write("cgroup/created", "");
      place.remove("cgroup");
      place.write("self", "4:memory:/other\n0::/outer/inner\n");
      for (const [directory, limit] of Object.entries(limits))
        place.write(`cgroup${directory}/memory.max`, `${limit}\n`);
      const env = { ...process.env, NODE_OPTIONS: options };
      const command = ["-c", `${script}\nheap_flags=; set_heap_flags; echo "$heap_flags"`];
      return spawnSync("sh", command, { cwd: place.path, env, encoding: "utf8" }).stdout.trim();
    };
    const [mib, none] = [1024 * 1024, "--max-semi-space-size=16"];
    const inner = "/outer/inner";
    assert.equal(flags({}), none);
    assert.equal(flags({ [inner]: "max" }), none);
    assert.equal(flags({ [inner]: "max", "/outer": `${1000 * mib}` }), `${none} --max-old-space-size=401`);
    assert.equal(flags({ [inner]: `${500 * mib}`, "/outer": `${1000 * mib}` }), `${none} --max-old-space-size=201`);
    assert.equal(flags({ "": `${100 * mib}` }), `${none} --max-old-space-size=41`);
    assert.equal(flags({ "/outer": `${64 * 1024 * mib}` }), none);
    assert.equal(flags({ "/outer": `${1000 * mib}` }, "--max-old-space-size=900"), none);
  });

  test("builds the watchdog of an installed package that has none, and serves without a watchdog if that fails", () => {
    using place = new Package();
    place.write("native/build.mjs", 'process.stdout.write("not for the user"); process.exitCode = 1;\n');
    assert.equal(place.run({}, "serve").output, "bundle procwire serve");
    const build = [
      'import { mkdirSync, writeFileSync } from "node:fs";',
      'const directory = new URL("build/", import.meta.url);',
      "mkdirSync(directory);",
      String.raw`const watchdog = "#!/bin/sh\necho built " + process.argv[2];`,
      'writeFileSync(new URL("watchdog", directory), watchdog, { mode: 0o755 });',
    ];
    place.write("native/build.mjs", build.join("\n"));
    assert.equal(place.run({}, "serve").output, "built --first-use\n");
  });

  test("runs a bundle whose code cache is unusable", () => {
    using place = new Package();
    for (const compiled of ["", "not compiled by anyone"]) {
      place.write("dist/bin/procwire.cjs.compiled", compiled);
      assert.equal(place.run().output, "bundle procwire");
    }
  });

  test("uses the second code cache of run with a server", () => {
    using place = new Package();
    place.remove("src");
    // A build stores the code cache that the run would use.
    const stored = (...args: string[]) => {
      place.build(...args);
      const names = readdirSync(join(place.path, "dist/bin")).filter((name) => name.endsWith(".compiled"));
      for (const name of names) place.remove(`dist/bin/${name}`);
      return names;
    };
    assert.deepEqual(stored("run", "--", "true"), ["procwire.cjs.compiled"]);
    assert.deepEqual(stored("run", "--connect=ws://x", "--", "true"), ["procwire.cjs.connected.compiled"]);
    assert.deepEqual(stored("ps", "--connect", "ws://x"), ["procwire.cjs.compiled"]);
  });
});
