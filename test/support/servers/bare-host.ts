import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { collectOutput } from "../../../src/exec/run/collect-output.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../../src/host/this-machine.ts";
import { runCli } from "./run-cli.ts";
import { PROCWIRE } from "./serve.ts";
import { OwnServerPlace } from "./user-server.ts";

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
export class BareHost extends OwnServerPlace {
  readonly home = join(this.folder, "home");
  /** What it has on its PATH. */
  readonly programs = join(this.folder, "far-bin");
  readonly #bin = join(this.folder, "bin");

  constructor(platform?: string) {
    super();
    const far = this.programs;
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
    // What is behind `--` is a command of the pod, where its home's procwire is on the PATH.
    writeFileSync(
      join(this.#bin, "kubectl"),
      `#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\nexec env -i ${environment} PATH='${this.home}/.local/share/procwire/bin:${far}' "$@"\n`,
      { mode: 0o755 },
    );
  }

  /** The PATH on which those that lead to it come first. */
  get path(): string {
    return `${this.#bin}:${process.env.PATH}`;
  }

  run(url: string, ...words: string[]) {
    return runCli(["run", "--connect", url, ...words], {
      cwd: this.folder,
      env: { PATH: this.path },
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
      env: { PATH: this.path, HOME: this.folder, TERM: "xterm" },
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
