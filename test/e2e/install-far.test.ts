import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { collectOutput } from "../../src/exec/collect-output.ts";
import { waitFor } from "../../src/exec/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/this-machine.ts";
import { OwnServerPlace } from "../support/own-server.ts";
import { runCli } from "../support/run-cli.ts";
import { PROCWIRE } from "../support/serve.ts";

const TIMEOUT = { timeout: 300_000 };
/** All that a far host needs: no Node and no procwire are among them. */
const FAR_PROGRAMS = [
  "sh",
  "tar",
  "mkdir",
  "mktemp",
  "mv",
  "rm",
  "dirname",
  "uname",
  "readlink",
  "find",
  "true",
  "cat",
];

/**
 * A host that a stand-in for `ssh` (or `docker`) leads to: the real command is run by a real shell, in a home of its own
 * and with nothing on the PATH but the programs of a bare system.
 */
class BareHost extends OwnServerPlace {
  readonly home = join(this.folder, "home");
  readonly #bin = join(this.folder, "bin");

  constructor(platform?: string) {
    super();
    const far = join(this.folder, "far-bin");
    for (const folder of [this.home, this.#bin, far]) mkdirSync(folder);
    for (const name of FAR_PROGRAMS) {
      const [found = ""] = ["/bin", "/usr/bin"].map((folder) => join(folder, name)).filter(existsSync);
      if (name !== "uname" || platform === undefined) symlinkSync(found, join(far, name));
      else writeFileSync(join(far, name), `#!/bin/sh\necho ${platform}\n`, { mode: 0o755 });
    }
    const environment = `HOME='${this.home}' PATH='${far}' PROCWIRE_RUNTIME_DIR='${this.directory}'`;
    // Its last word is the command, as a login shell gets it; docker's is a script.
    const run = (shell: string) =>
      `#!/bin/sh\nfor word; do :; done\nexec env -i ${environment} /bin/sh -c "${shell}"\n`;
    writeFileSync(join(this.#bin, "ssh"), run("$word"), { mode: 0o755 });
    writeFileSync(join(this.#bin, "docker"), run("$word"), { mode: 0o755 });
  }

  run(url: string, ...words: string[]) {
    return runCli(["run", "--connect", url, ...words], {
      cwd: this.folder,
      env: { PATH: `${this.#bin}:${process.env.PATH}` },
    });
  }

  /** The same at a terminal, where a person answers the question; gives all that was shown. */
  async answer(word: string): Promise<string> {
    await using backend = createLocalBackend();
    const words = ["run", "--connect", "ssh://bare", "--install", "--", "sh", "-c", "echo $HOME; exit 7"];
    const terminal = await backend.start({
      processId: "person",
      argv: ["/bin/sh", "-c", `"$@"; echo ended $?`, "sh", PROCWIRE, ...words],
      cwd: this.folder,
      env: { PATH: `${this.#bin}:${process.env.PATH}`, HOME: this.folder, TERM: "xterm" },
      tty: true,
    });
    await waitFor(terminal, "/.local/share/procwire? [y/N] ");
    await terminal.write(new TextEncoder().encode(`${word}\r`));
    const { stdout } = await collectOutput(terminal);
    return Buffer.from(stdout).toString();
  }

  /** What is below `~/.local/share`; nothing where that is missing. */
  installed(): string[] {
    const folder = join(this.home, ".local", "share");
    return existsSync(folder) ? readdirSync(folder) : [];
  }
}

describe("--install", TIMEOUT, () => {
  it("copies this procwire with its Node to a host that has neither, and runs there", async () => {
    await using host = new BareHost();
    const missing = await host.run("ssh://bare", "--", "true");
    assert.equal(missing.code, 125);
    assert.match(
      missing.stderr,
      /there is no procwire on that host \(Linux .*`procwire run --install` copies it there/,
    );

    const asked = await host.run("ssh://bare", "--install", "--", "true");
    assert.equal(asked.code, 125);
    assert.match(asked.stderr, /there is no terminal to ask on; add --yes/);
    assert.deepEqual(host.installed(), []);

    const no = await host.answer("n");
    assert.match(no, /because you did not say yes\r\n.*ended 125/s);
    assert.deepEqual(host.installed(), []);
    const yes = await host.answer("y");
    assert.match(yes, /\nprocwire: copying \d+ MB to bare:~\/\.local\/share\/procwire\r\n/);
    assert.ok(yes.endsWith(`${host.home}\r\nended 7\r\n`), yes);
    assert.deepEqual(host.installed(), ["procwire"]);

    // It is found from then on, by whatever leads there, and nothing is copied again.
    for (const url of ["ssh://bare", "docker://bare"]) {
      const again = await host.run(url, "--install", "--", "sh", "-c", "echo again");
      assert.deepEqual([again.code, again.stdout, again.stderr], [0, "again\n", ""]);
    }
    // What serves there is the copy: its own Node, and the keeper that came with it.
    const programs = host.serverPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
    assert.ok(
      programs.length > 0 && programs.every((words) => words.startsWith(`${host.home}/.local/share/`)),
    );
  });

  it("leaves nothing behind when the copy fails", async () => {
    await using host = new BareHost();
    const tar = join(host.folder, "far-bin", "tar");
    rmSync(tar);
    writeFileSync(tar, "#!/bin/sh\necho no space left >&2\nexit 2\n");
    chmodSync(tar, 0o755);
    const { code, stderr } = await host.run("docker://bare", "--install", "--yes", "--", "true");
    assert.equal(code, 125);
    assert.match(stderr, /procwire could not be copied to bare:~\/\.local\/share\/procwire: no space left/);
    assert.deepEqual(host.installed(), []);
  });

  it("is refused for another platform, with the package to install there", async () => {
    await using arm = new BareHost("Linux aarch64");
    const { code, stderr } = await arm.run("ssh://bare", "--install", "--yes", "--", "true");
    assert.equal(code, 125);
    assert.match(
      stderr,
      /is Linux aarch64, and what runs here .* `npm install --global procwire` there, which brings @procwire\/linux-arm64/,
    );
    assert.deepEqual(arm.installed(), []);
  });

  it("is refused where nothing can be copied", async () => {
    await using host = new BareHost();
    for (const [url, reason] of [
      ["exec:true", /--install does not go with exec: only its command knows the way/],
      ["ws://127.0.0.1:1", /--install is for ssh:\/\/ and docker:\/\//],
    ] as const) {
      const { code, stderr } = await host.run(url, "--install", "--", "true");
      assert.equal(code, 125);
      assert.match(stderr, reason);
    }
    const alone = await host.run("ssh://bare", "--yes", "--", "true");
    assert.match(alone.stderr, /--yes is for --install; add it/);
  });
});
