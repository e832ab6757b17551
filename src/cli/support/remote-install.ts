import { type ChildProcess, spawn } from "node:child_process";
import { machine, type } from "node:os";
import { createInterface } from "node:readline/promises";
import { pipeline } from "node:stream/promises";
import { errorMessage } from "../../base/error-message.ts";
import type { ConnectionState, ExecServerClient } from "../../client/exec-server-client.ts";
import { parseConnectUrl, REMOTE_INSTALL_DIRECTORY } from "../../client/node/connect-url.ts";
import { type HostPlatform, PipeTransportError } from "../../client/node/pipe-transport.ts";
import { connectServer, type ServerAddress } from "../../host/connect-server.ts";
import { currentLibc, isSupportedNode, PlatformPackages } from "../../host/package/platform-packages.ts";
import { type PlatformFiles, SelfPackage } from "../../host/package/self-package.ts";
import { UsageError } from "../command.ts";
import { CopyProgress } from "../terminal/copy-progress.ts";

/** Supported CPU architectures: the name in `uname`, and the name in npm. */
const PROCESSORS: ReadonlyMap<string, string> = new Map([
  ["x86_64", "x64"],
  ["aarch64", "arm64"],
]);
const SHOWN_STDERR_CHARS = 600;

/**
 * Takes the copy from stdin. Runs the copy once before it renames the copy into target, so that a truncated or
 * incompatible copy is never used.
 */
const INSTALL_SCRIPT = [
  "set -e",
  "umask 077",
  `to="$HOME/${REMOTE_INSTALL_DIRECTORY}"`,
  'mkdir -p "$(dirname "$to")"',
  'new=$(mktemp -d "$to.XXXXXX")',
  'trap "rm -rf \\"$new\\" \\"$new.old\\"" EXIT',
  'tar -xf - -C "$new"',
  '"$new/bin/procwire" run --connect local -- true </dev/null',
  '[ ! -e "$to" ] || mv "$to" "$new.old"',
  'mv "$new" "$to"',
].join("; ");

export interface InstallOptions {
  /** Whether to install without confirmation. */
  assumeYes: boolean;
  /** Path of the package for the platform of the remote host. Default: search. */
  from?: string | undefined;
}

/** Connects. If the remote host has no procwire, installs this version first. */
export async function connectOrInstall(
  address: ServerAddress,
  options: InstallOptions,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const scriptArgv = scriptRunner(address.url);
  try {
    return await connectServer(address, onConnectionState);
  } catch (error) {
    const host = findBareHost(error);
    if (host === null) throw error;
    await install(address.url, host, options, scriptArgv(INSTALL_SCRIPT));
  }
  return connectServer(address, onConnectionState);
}

/** Returns a function that wraps a shell script into the argv that runs it on the remote host. */
function scriptRunner(url: string): (script: string) => string[] {
  const target = parseConnectUrl(url);
  if (target.type === "socket")
    throw new UsageError(`--install requires an ssh:// or docker:// URL; a server at \`${url}\` must already run`);
  if (target.scriptArgv === null)
    throw new UsageError(
      "--install conflicts with exec:, whose command can only run `procwire connect`; install procwire on that host yourself",
    );
  return target.scriptArgv;
}

/** Returns the platform of a remote host without procwire, or null for other errors. */
function findBareHost(error: unknown): HostPlatform | null {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof PipeTransportError) return cause.bareHost;
  return null;
}

async function install(
  url: string,
  host: HostPlatform,
  { assumeYes, from }: InstallOptions,
  argv: string[],
): Promise<void> {
  // Fail before the download if there is no terminal for the confirmation.
  if (!assumeYes) requireTerminal();
  using packages = new PlatformPackages({ from, log: logLine });
  const parts = await packagesFor(url, host, packages, from !== undefined);
  using copy = new SelfPackage(parts);
  const target = `${new URL(url).host}:~/${REMOTE_INSTALL_DIRECTORY}`;
  const size = `${Math.ceil(copy.bytes / 1_000_000)} MB`;
  if (!assumeYes) await confirm(`copy procwire (${size}) to ${target}? [y/N] `);
  logLine(`copying ${size} to ${target}`);
  await send(copy.tarArgv, argv, { target, totalBytes: copy.bytes });
  logLine(`installed procwire in ${target}`);
}

/** Returns the packages to install: this one if it runs there, otherwise that of the platform, plus Node if missing. */
async function packagesFor(
  url: string,
  host: HostPlatform,
  packages: PlatformPackages,
  hasFrom: boolean,
): Promise<PlatformFiles> {
  const libc = host.libc ?? "glibc";
  const isSamePlatform = host.platform === `${type()} ${machine()}` && (host.libc ?? currentLibc()) === currentLibc();
  if (isSamePlatform && !hasFrom) return { node: process.execPath };
  const [system, processor = ""] = host.platform.split(" ");
  const cpu = PROCESSORS.get(processor);
  const description = `${url} is ${host.platform}${host.libc === null ? "" : ` with ${host.libc}`}`;
  if (system !== "Linux" || cpu === undefined)
    throw new Error(`${description}: no package for this platform; install Node 24 and a compiler there`);
  const platform = `linux-${cpu}${libc === "musl" ? "-musl" : ""}`;
  try {
    const native = await packages.native(platform);
    if (isSamePlatform) return { native, node: process.execPath };
    if (isSupportedNode(host.nodeVersion)) return { native, node: null };
    // There is no npm package of Node for musl.
    if (libc === "musl") throw new Error("no Node package for musl; install Node 24 on the host and try again");
    return { native, node: await packages.node(platform) };
  } catch (cause) {
    const remedy = `use --install-from with a file or directory, or run \`npm install --global procwire\` there, which installs @procwire/${platform}`;
    throw new Error(
      `${description}, this host is ${type()} ${machine()} with ${currentLibc()}: ${errorMessage(cause)}; ${remedy}`,
      { cause },
    );
  }
}

function logLine(text: string): void {
  process.stderr.write(`procwire: ${text}\n`);
}

function requireTerminal(): void {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new Error("--install asks for confirmation, but there is no terminal; add --yes");
}

async function confirm(question: string): Promise<void> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await terminal.question(question);
    if (!/^y(es)?$/i.test(answer.trim())) throw new Error("procwire was not copied: not confirmed");
  } finally {
    terminal.close();
  }
}

/** Resolves when the remote host has installed the copy. */
async function send(
  tarArgv: string[],
  installArgv: string[],
  { target, totalBytes }: { target: string; totalBytes: number },
): Promise<void> {
  const [tarName = "", ...tarArgs] = tarArgv;
  const [installName = "", ...installArgs] = installArgv;
  const tar = spawn(tarName, tarArgs, { stdio: ["ignore", "pipe", "pipe"] });
  const install = spawn(installName, installArgs, { stdio: ["pipe", "ignore", "pipe"] });
  const [tarFailure, installFailure] = [waitForFailure(tar, tarName), waitForFailure(install, installName)];
  // A broken pipe has its cause in one of the two programs.
  const [, ...failures] = await Promise.all([
    pipeline(tar.stdout, reportProgress(totalBytes), install.stdin).catch(() => undefined),
    installFailure,
    tarFailure,
  ]);
  const failure = failures.find((candidate) => candidate !== null);
  if (failure) throw new Error(`cannot copy procwire to ${target}: ${failure}`);
}

/** Passes data on and shows the progress: a bar on a terminal, otherwise a line per quarter. */
function reportProgress(totalBytes: number): (source: AsyncIterable<Buffer>) => AsyncGenerator<Buffer> {
  const bar = process.stderr.isTTY ? new CopyProgress(process.stderr) : null;
  return async function* (source) {
    let bytes = 0;
    let reported = 0;
    for await (const chunk of source) {
      yield chunk;
      bytes += chunk.length;
      bar?.update({
        bytes,
        totalBytes: Math.max(bytes, totalBytes),
        files: 0,
        totalFiles: 1,
        unchanged: 0,
        isCounted: true,
      });
      const quarter = Math.min(3, Math.floor((4 * bytes) / totalBytes));
      if (!bar && quarter > reported) logLine(`copied ${25 * quarter}%`);
      reported = quarter;
    }
    bar?.clear();
    logLine("copied; the host checks the copy");
  };
}

/** Resolves to the reason why a program failed, or to null if it succeeded. */
function waitForFailure(child: ChildProcess, name: string): Promise<string | null> {
  let stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    stderr = (stderr + text).slice(-SHOWN_STDERR_CHARS);
  });
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(`cannot run \`${name}\`: ${error.message}`));
    child.once("close", (code, signal) => {
      if (code === 0) resolve(null);
      else resolve(stderr.trim() || `\`${name}\` exited with ${code ?? signal}`);
    });
  });
}
