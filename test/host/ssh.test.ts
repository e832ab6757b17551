import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { userInfo } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { ExecServerClient } from "../../src/client/node/socket-client.ts";
import { carryThroughCuts } from "../support/cut-pipe.ts";
import { OwnServerPlace } from "../support/own-server.ts";
import { runCli } from "../support/run-cli.ts";
import { childrenOf, PROCWIRE } from "../support/serve.ts";
import { skipUnless } from "../support/skip-unless.ts";
import { until } from "../support/until.ts";

const SSHD = "/usr/sbin/sshd";
const OPTIONS = {
  timeout: 300_000,
  skip: skipUnless(isProgram(SSHD), "there is no sshd; `npm run setup:debian` installs openssh-server"),
};

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A real sshd on a port of its own, with keys of its own; and an ssh that knows them. */
class LoopbackSshd {
  readonly place = new OwnServerPlace();
  readonly home = join(this.place.folder, "home");
  readonly port: number;
  readonly #daemon: ChildProcess;
  readonly #pids: string;

  private constructor(port: number, isBare: boolean) {
    this.port = port;
    const file = (name: string, text?: string) => {
      const path = join(this.place.folder, name);
      if (text !== undefined) writeFileSync(path, text, { mode: 0o600 });
      return path;
    };
    const [hostKey, ownKey] = [file("host-key"), file("own-key")];
    for (const key of [hostKey, ownKey])
      execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
    // sshd's privilege separation directory, needed where it runs as root.
    if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true });
    // A bare host has no procwire on its PATH, and a home of its own.
    mkdirSync(this.home);
    const path = isBare
      ? "/usr/bin:/bin"
      : `${dirname(PROCWIRE)}:${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;
    const home = isBare ? ` HOME=${this.home}` : "";
    const config = [
      `Port ${port}`,
      "ListenAddress 127.0.0.1",
      `HostKey ${hostKey}`,
      `PidFile ${file("pid")}`,
      `AuthorizedKeysFile ${file("authorized", readFileSync(`${ownKey}.pub`, "utf8"))}`,
      ...[
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "PermitRootLogin yes",
        "MaxStartups 100",
      ],
      `SetEnv PATH=${path} PROCWIRE_RUNTIME_DIR=${this.place.directory}${home}`,
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

  static async start({ isBare = false } = {}): Promise<LoopbackSshd> {
    const free = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => free.once("listening", resolve));
    const address = free.address();
    assert.ok(typeof address === "object" && address !== null);
    await new Promise((resolve) => free.close(resolve));
    return new LoopbackSshd(address.port, isBare);
  }

  get url(): string {
    return `ssh://${userInfo().username}@127.0.0.1:${this.port}`;
  }

  /** The PATH on which ssh is the one that knows the keys. */
  get path(): string {
    return `${join(this.place.folder, "bin")}:${process.env.PATH}`;
  }

  /** Every ssh that was run, the last one last. */
  clients(): number[] {
    const text = readFileSync(this.#pids, "utf8").trim();
    return text === "" ? [] : text.split("\n").map(Number);
  }

  /** The daemon's own process of each connection. */
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

describe("a host behind a real sshd", OPTIONS, () => {
  let sshd: LoopbackSshd;
  const pathBefore = process.env.PATH;
  before(async () => {
    sshd = await LoopbackSshd.start();
    process.env.PATH = sshd.path;
  });
  after(async () => {
    process.env.PATH = pathBefore;
    await sshd?.stop();
  });
  const cli = (...args: string[]) =>
    runCli(args, { cwd: sshd.place.folder, env: { PATH: sshd.path }, stdin: "typed\n" });

  it("runs a command as if it ran here, on a server that is started for it", async () => {
    const words = ["--connect", sshd.url, "--wait", "20", "--", "sh", "-c", "cat; echo problem >&2; exit 7"];
    const { code, stdout, stderr } = await cli("run", ...words);
    assert.deepEqual([code, stdout, stderr], [7, "typed\n", "problem\n"]);
    const listed = await cli("ps", "--all", "--connect", sshd.url);
    assert.match(listed.stdout, /exit 7/);
  });

  it("loses and doubles nothing while its connection is killed twenty times, on either side", async () => {
    await using client = await ExecServerClient.connectWebSocket({ url: sshd.url });
    await carryThroughCuts(client, {
      bytes: 30_000_000,
      cuts: 20,
      opened: () => sshd.clients().length,
      cut: (number) => {
        const victims = number % 2 === 0 ? sshd.sessions() : sshd.clients().slice(-1);
        for (const pid of victims) process.kill(pid, "SIGKILL");
      },
    });
  });

  it("reports ssh's own message when it cannot connect", async () => {
    const { code, stderr } = await cli("run", "--connect", "ssh://127.0.0.1:1", "--", "true");
    assert.equal(code, 125);
    assert.match(
      stderr,
      /^procwire run: ssh:\/\/127\.0\.0\.1:1: ssh: connect to host 127\.0\.0\.1 port 1: Connection refused/,
    );
  });

  it("gets a copy of procwire with --install when it is asked for, and only once", async (t) => {
    const bare = await LoopbackSshd.start({ isBare: true });
    t.after(() => bare.stop());
    const run = (...words: string[]) =>
      runCli(
        [
          "run",
          "--connect",
          bare.url,
          "--wait",
          "20",
          "--install",
          ...words,
          "--",
          "sh",
          "-c",
          "echo $0 ran",
        ],
        {
          cwd: bare.place.folder,
          env: { PATH: bare.path },
        },
      );
    const asked = await run();
    assert.equal(asked.code, 125);
    assert.match(asked.stderr, /there is no terminal to ask on; add --yes/);
    assert.deepEqual(readdirSync(bare.home), []);
    const copied = await run("--yes");
    assert.deepEqual([copied.code, copied.stdout], [0, "sh ran\n"], copied.stderr);
    assert.match(
      copied.stderr,
      /^procwire: copying \d+ MB to 127\.0\.0\.1:\d+:~\/\.local\/share\/procwire\n$/,
    );
    const { ino, mtimeMs } = statSync(join(bare.home, ".local/share/procwire"));
    const again = await run("--yes");
    assert.deepEqual([again.code, again.stdout, again.stderr], [0, "sh ran\n", ""]);
    const after = statSync(join(bare.home, ".local/share/procwire"));
    assert.deepEqual([after.ino, after.mtimeMs], [ino, mtimeMs]);
    const programs = bare.place.serverPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
    assert.ok(
      programs.length > 0 && programs.every((words) => words.startsWith(`${bare.home}/.local/share/`)),
    );
  });

  it("leaves nothing of ssh behind", async () => {
    await until("every connection is gone", () => sshd.sessions().length === 0);
  });
});
