/**
 * `node bench/copy.ts [--small] [--directory DIR] [--runs 3] [--files 49000] [--only large|many] [--ways NAME,...]`:
 * copies one large file and many small files to and from this host with `procwire cp`, `scp` and `rsync`, over a
 * temporary sshd on loopback. The ways take turns. Prints the median of the runs of each, as a ratio to scp.
 *
 * `procwire (ssh)` goes through the same sshd by an `ssh://` URL, `procwire (ws)` over a WebSocket on loopback, unencrypted. Needs
 * Debian's openssh-server and rsync (`npm run setup:debian`), and root or a user who may log in with a key. `--small`
 * is a short run that only shows that the benchmark works; its results mean nothing.
 */
import { execFileSync, type SpawnSyncOptions, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { median } from "./report.ts";

const PROCWIRE = fileURLToPath(new URL("../bin/procwire", import.meta.url));
const { values } = parseArgs({
  options: {
    small: { type: "boolean" },
    directory: { type: "string" },
    runs: { type: "string" },
    files: { type: "string" },
    only: { type: "string" },
    ways: { type: "string" },
  },
});
const LARGE_MIB = values.small ? 32 : 1024;
const SMALL_FILES = Number(values.files ?? (values.small ? 200 : 49_000));
const RUNS = Number(values.runs ?? (values.small ? 1 : 3));
/** Longer than the other ways take, so that each copy finds the remote server running, as in daily use. */
const IDLE_EXIT_SECONDS = values.small ? 5 : 60;

const scratch = mkdtempSync(join(values.directory ?? tmpdir(), "procwire-copy-bench-"));
const path = (name: string) => join(scratch, name);
const stops: (() => void)[] = [];

/** Ends the started programs. Removes the directory once the remote server has exited and no longer writes there. */
function cleanUp(): void {
  for (const stop of stops.splice(0).reverse()) stop();
  const until = Date.now() + 2 * IDLE_EXIT_SECONDS * 1000;
  while (existsSync(path("run/server.sock")) && Date.now() < until) spawnSync("sleep", ["0.1"]);
  rmSync(scratch, { recursive: true, force: true, maxRetries: 10 });
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.once(signal, () => {
    cleanUp();
    process.exit(1);
  });

function run(program: string, args: string[], options: SpawnSyncOptions = {}): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: "utf8", ...options });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? stderr}`);
}

let copies = 0;
const destination = () => path(`copy-${copies}`);

/**
 * Returns the time in seconds. Small files stay until the end: ext4 searches longer for a free inode while many were
 * deleted in the last minutes, which would multiply the time of the next copies.
 */
function measure(copy: () => void): number {
  if (existsSync(destination()) && statSync(destination()).isFile()) rmSync(destination());
  copies++;
  spawnSync("sync");
  const startedAt = performance.now();
  copy();
  return (performance.now() - startedAt) / 1000;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  // `address()` of a listening TCP server is never null or a string.
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Starts an sshd with temporary keys. Returns the ssh arguments that connect to it. */
async function startSshd(): Promise<string[]> {
  const port = await freePort();
  for (const key of ["host_key", "key"]) run("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", path(key)]);
  writeFileSync(path("authorized"), execFileSync("cat", [path("key.pub")]), { mode: 0o600 });
  const config = [
    `Port ${port}`,
    "ListenAddress 127.0.0.1",
    `HostKey ${path("host_key")}`,
    `AuthorizedKeysFile ${path("authorized")}`,
    `PidFile ${path("pid")}`,
    "UsePAM no",
    "StrictModes no",
    "PasswordAuthentication no",
    "Subsystem sftp internal-sftp",
    `SetEnv PATH=${path("remote-bin")}:${process.env.PATH}`,
  ];
  writeFileSync(path("sshd_config"), `${config.join("\n")}\n`);
  mkdirSync("/run/sshd", { recursive: true });
  const sshd = spawn("/usr/sbin/sshd", ["-D", "-e", "-f", path("sshd_config")], { stdio: "ignore" });
  stops.push(() => sshd.kill());
  const options = [
    "BatchMode=yes",
    "StrictHostKeyChecking=no",
    `UserKnownHostsFile=${path("known")}`,
    "LogLevel=ERROR",
  ];
  const sshArgs = ["-i", path("key"), ...options.flatMap((option) => ["-o", option]), "-o", `Port=${port}`];
  const until = Date.now() + 10_000;
  while (spawnSync("ssh", [...sshArgs, target(), "true"]).status !== 0)
    if (Date.now() > until) throw new Error("sshd rejects this user");
  return sshArgs;
}

function target(): string {
  return `${userInfo().username}@127.0.0.1`;
}

/**
 * Returns an `ssh://` URL. Directories on the PATH hold an `ssh` with the arguments of the temporary sshd, and, for the
 * remote shell, a `procwire` whose server exits some time after the last copy.
 */
function makeSshUrl(sshArgs: string[]): string {
  for (const directory of ["bin", "remote-bin"]) mkdirSync(path(directory));
  const script = (lines: string) => `#!/bin/sh\n${lines}\n`;
  const ssh = execFileSync("sh", ["-c", "command -v ssh"], { encoding: "utf8" }).trim();
  writeFileSync(path("bin/ssh"), script(`exec ${ssh} ${sshArgs.join(" ")} "$@"`), { mode: 0o755 });
  const remote = `PROCWIRE_RUNTIME_DIR=${path("run")} exec ${PROCWIRE} "$@" --idle-exit ${IDLE_EXIT_SECONDS}`;
  writeFileSync(path("remote-bin/procwire"), script(remote), { mode: 0o755 });
  return `ssh://${target()}`;
}

async function startServer(): Promise<string> {
  const server = spawn(PROCWIRE, ["serve", "--listen", "ws://127.0.0.1:0"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  stops.push(() => server.kill());
  const [url] = await once(server.stdout, "data");
  return String(url).trim();
}

try {
  const ssh = await startSshd();
  const url = await startServer();
  const overSsh = makeSshUrl(ssh);
  const block = execFileSync("head", ["-c", String(1024 * 1024), "/dev/urandom"], { maxBuffer: 2 ** 24 });
  for (let count = 0; count < LARGE_MIB; count++) appendFileSync(path("large"), block);
  for (let at = 0; at < SMALL_FILES; at++) {
    const directory = path(`many/${Math.floor(at / 100)}`);
    if (at % 100 === 0) mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, `${at}.txt`), block.subarray(0, 500 + (at % 2000)));
  }
  const env = { ...process.env, PATH: `${path("bin")}:${process.env.PATH}` };
  const cp = (connect: string, ...paths: string[]) =>
    run(PROCWIRE, ["cp", "-q", "--connect", connect, ...paths], { env });
  const allWays: [string, { up: (what: string) => void; down: (what: string) => void }][] = [
    [
      "scp",
      {
        up: (what) => run("scp", ["-q", "-r", "-p", ...ssh, path(what), `${target()}:${destination()}`]),
        down: (what) => run("scp", ["-q", "-r", "-p", ...ssh, `${target()}:${path(what)}`, destination()]),
      },
    ],
    [
      "rsync",
      {
        up: (what) =>
          run("rsync", ["-a", "-e", `ssh ${ssh.join(" ")}`, withTrailingSlash(what), `${target()}:${destination()}`]),
        down: (what) =>
          run("rsync", ["-a", "-e", `ssh ${ssh.join(" ")}`, `${target()}:${withTrailingSlash(what)}`, destination()]),
      },
    ],
    [
      "procwire (ssh)",
      {
        up: (what) => cp(overSsh, path(what), `:${destination()}`),
        down: (what) => cp(overSsh, `:${path(what)}`, destination()),
      },
    ],
    [
      "procwire (ws)",
      {
        up: (what) => cp(url, path(what), `:${destination()}`),
        down: (what) => cp(url, `:${path(what)}`, destination()),
      },
    ],
  ];
  // The first command starts the server on the remote host; the measured ones find it, as in daily use.
  if (values.ways === undefined || values.ways.includes("ssh")) run(PROCWIRE, ["ps", "--connect", overSsh], { env });
  const wanted = values.ways?.split(",");
  const ways = allWays.filter(([name]) => !wanted || wanted.includes(name));
  console.log(
    `| ${LARGE_MIB} MiB and ${SMALL_FILES} files, seconds (ratio to scp) | ${ways.map(([name]) => name).join(" | ")} |`,
  );
  console.log(`|---|${ways.map(() => "---").join("|")}|`);
  for (const [what, label] of [
    ["large", "one large file"],
    ["many", "many small files"],
  ] as const) {
    if (values.only !== undefined && values.only !== what) continue;
    for (const direction of ["up", "down"] as const) {
      const rounds = Array.from({ length: RUNS }, () => ways.map(([, way]) => measure(() => way[direction](what))));
      const times = ways.map((_, at) => median(rounds.map((round) => round[at])) ?? Number.NaN);
      const cells = times.map((time) => `${time.toFixed(2)} (${((times[0] ?? time) / time).toFixed(2)}x)`);
      console.log(`| ${label}, ${direction === "up" ? "to" : "from"} the server | ${cells.join(" | ")} |`);
    }
  }
} finally {
  cleanUp();
}

/** A trailing slash makes rsync copy the contents of a directory, not the directory into the destination. */
function withTrailingSlash(what: string): string {
  return what === "many" ? `${path(what)}/` : path(what);
}
