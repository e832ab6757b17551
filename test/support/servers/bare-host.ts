import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { collectOutput } from "../../../src/exec/run/collect-output.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../../src/host/create-local-backend.ts";
import { runCli } from "./run-cli.ts";
import { PROCWIRE } from "./serve.ts";
import { UserServerDirectory } from "./user-server.ts";

/** All programs that a remote host needs, which exclude Node and procwire. */
const REMOTE_PROGRAMS = [
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
 * A host behind a fake `ssh` (or `docker`): a real shell runs the real command, in a temporary home and with only the
 * programs of a bare system on the PATH.
 */
export class BareHost extends UserServerDirectory {
  readonly home = join(this.directory, "home");
  /** The only directory on the PATH of the host. */
  readonly programs = join(this.directory, "far-bin");
  readonly #bin = join(this.directory, "bin");

  constructor(platform?: string) {
    super();
    const remoteBin = this.programs;
    for (const path of [this.home, this.#bin, remoteBin]) mkdirSync(path);
    for (const name of REMOTE_PROGRAMS) {
      const [found = ""] = ["/bin", "/usr/bin"].map((directory) => join(directory, name)).filter(existsSync);
      if (name !== "uname" || platform === undefined) symlinkSync(found, join(remoteBin, name));
      else writeFileSync(join(remoteBin, name), `#!/bin/sh\necho ${platform}\n`, { mode: 0o755 });
    }
    const environment = `HOME='${this.home}' PATH='${remoteBin}' PROCWIRE_RUNTIME_DIR='${this.runtimeDirectory}'`;
    // The last argument of ssh is the command for a login shell; that of docker is a script.
    const run = (shell: string) =>
      `#!/bin/sh\nfor word; do :; done\nexec env -i ${environment} /bin/sh -c "${shell}"\n`;
    writeFileSync(join(this.#bin, "ssh"), run("$word"), { mode: 0o755 });
    writeFileSync(join(this.#bin, "docker"), run("$word"), { mode: 0o755 });
    // The arguments after `--` are a command in the pod, with the procwire of the pod's home on the PATH.
    writeFileSync(
      join(this.#bin, "kubectl"),
      `#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\nexec env -i ${environment} PATH='${this.home}/.local/share/procwire/bin:${remoteBin}' "$@"\n`,
      { mode: 0o755 },
    );
  }

  /** The PATH on which the fake connection programs come first. */
  get path(): string {
    return `${this.#bin}:${process.env.PATH}`;
  }

  run(url: string, ...words: string[]) {
    return runCli(["run", "--connect", url, ...words], {
      cwd: this.directory,
      env: { PATH: this.path },
    });
  }

  /** Connects on a terminal and types the answer to the prompt. Returns the whole terminal output. */
  async answer(word: string): Promise<string> {
    await using backend = createLocalBackend();
    const words = ["run", "--connect", "ssh://bare", "--install", "--", "sh", "-c", "echo $HOME; exit 7"];
    const terminal = await backend.start({
      processId: "user",
      argv: ["/bin/sh", "-c", `"$@"; echo ended $?`, "sh", PROCWIRE, ...words],
      cwd: this.directory,
      env: { PATH: this.path, HOME: this.directory, TERM: "xterm" },
      tty: true,
    });
    await waitFor(terminal, "/.local/share/procwire? [y/N] ");
    await terminal.write(new TextEncoder().encode(`${word}\r`));
    const { stdout } = await collectOutput(terminal);
    return Buffer.from(stdout).toString();
  }

  /** Lists the entries of `~/.local/share`; empty if the directory is missing. */
  installed(): string[] {
    const share = join(this.home, ".local", "share");
    return existsSync(share) ? readdirSync(share) : [];
  }
}
