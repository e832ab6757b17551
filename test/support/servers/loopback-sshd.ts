import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { accessSync, constants, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { userInfo } from "node:os";
import { dirname, join } from "node:path";
import { skipUnless } from "../system/skip-unless.ts";
import { childrenOf, PROCWIRE } from "./serve.ts";
import { UserServerDirectory } from "./user-server.ts";

const SSHD = "/usr/sbin/sshd";
/** Why no sshd can run on this host, or false. */
export const SKIP_WITHOUT_SSHD = skipUnless(
  isProgram(SSHD),
  "there is no sshd; `npm run setup:debian` installs openssh-server",
);

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export interface RemoteHostOptions {
  /** Uses a temporary home and a PATH without procwire. */
  isBare?: boolean;
  /** First directory on the PATH of a bare host. */
  programs?: string;
  /** Program that runs every command; it finds the command in SSH_ORIGINAL_COMMAND. */
  under?: string;
}

/** A real sshd on a free port, with temporary keys, and an ssh that knows them. */
export class LoopbackSshd {
  readonly place = new UserServerDirectory();
  readonly home = join(this.place.directory, "home");
  readonly port: number;
  readonly #daemon: ChildProcess;
  readonly #pids: string;

  private constructor(port: number, { isBare = false, programs, under }: RemoteHostOptions) {
    this.port = port;
    const file = (name: string, text?: string) => {
      const path = join(this.place.directory, name);
      if (text !== undefined) writeFileSync(path, text, { mode: 0o600 });
      return path;
    };
    const [hostKey, ownKey] = [file("host-key"), file("own-key")];
    for (const key of [hostKey, ownKey]) execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
    // sshd's privilege separation directory, required if sshd runs as root.
    if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true });
    mkdirSync(this.home);
    const path = isBare
      ? `${programs === undefined ? "" : `${programs}:`}/usr/bin:/bin`
      : `${dirname(PROCWIRE)}:${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;
    const home = isBare ? ` HOME=${this.home}` : "";
    const config = [
      `Port ${port}`,
      "ListenAddress 127.0.0.1",
      `HostKey ${hostKey}`,
      `PidFile ${file("pid")}`,
      `AuthorizedKeysFile ${file("authorized", readFileSync(`${ownKey}.pub`, "utf8"))}`,
      ...["StrictModes no", "UsePAM no", "PasswordAuthentication no", "PermitRootLogin yes", "MaxStartups 100"],
      `SetEnv PATH=${path} PROCWIRE_RUNTIME_DIR=${this.place.runtimeDirectory}${home}`,
      ...(under === undefined ? [] : [`ForceCommand ${under}`]),
    ];
    this.#daemon = spawn(SSHD, ["-D", "-e", "-f", file("sshd_config", `${config.join("\n")}\n`)], {
      stdio: "ignore",
    });
    const options = [
      `IdentityFile ${ownKey}`,
      "IdentitiesOnly yes",
      `UserKnownHostsFile ${file("known")}`,
      "StrictHostKeyChecking no",
      "LogLevel ERROR",
    ];
    this.#pids = file("pids", "");
    mkdirSync(file("bin"));
    const ssh = `#!/bin/sh\necho $$ >> '${this.#pids}'\nexec /usr/bin/ssh -F '${file("config", `${options.join("\n")}\n`)}' "$@"\n`;
    writeFileSync(join(file("bin"), "ssh"), ssh, { mode: 0o755 });
  }

  static async start(options: RemoteHostOptions = {}): Promise<LoopbackSshd> {
    const free = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => free.once("listening", resolve));
    const address = free.address();
    assert.ok(typeof address === "object" && address !== null);
    await new Promise((resolve) => free.close(resolve));
    return new LoopbackSshd(address.port, options);
  }

  get url(): string {
    return `ssh://${userInfo().username}@127.0.0.1:${this.port}`;
  }

  /** The PATH on which `ssh` is the program that knows the keys. */
  get path(): string {
    return `${join(this.place.directory, "bin")}:${process.env.PATH}`;
  }

  /** Returns the pids of all started ssh programs, the newest last. */
  clients(): number[] {
    const text = readFileSync(this.#pids, "utf8").trim();
    return text === "" ? [] : text.split("\n").map(Number);
  }

  /** Returns the pids of the daemon's processes, one per connection. */
  sessions(): number[] {
    return childrenOf(this.#daemon.pid ?? 0);
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#daemon.once("exit", resolve));
    this.#daemon.kill("SIGTERM");
    await ended;
    await this.place[Symbol.asyncDispose]();
  }
}
