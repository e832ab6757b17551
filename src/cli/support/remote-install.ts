import { type ChildProcess, spawn } from "node:child_process";
import { machine, type } from "node:os";
import { createInterface } from "node:readline/promises";
import { pipeline } from "node:stream/promises";
import { errorMessage } from "../../base/error-message.ts";
import type { ConnectionState, ExecServerClient } from "../../client/exec-server-client.ts";
import { parseConnectUrl, REMOTE_INSTALL_DIRECTORY } from "../../client/node/connect-url.ts";
import { type HostPlatform, PipeTransportError } from "../../client/node/pipe-transport.ts";
import { connectServer, type ServerAddress } from "../../host/connect-server.ts";
import { currentLibc, isSupportedNode, PlatformPackages } from "../../host/platform-packages.ts";
import { type PlatformFiles, SelfPackage } from "../../host/self-package.ts";
import { UsageError } from "../command.ts";

/** Supported CPU architectures: the name in `uname`, and the name in npm. */
const PROCESSORS: ReadonlyMap<string, string> = new Map([
  ["x86_64", "x64"],
  ["aarch64", "arm64"],
]);
const SHOWN_STDERR_CHARS = 600;

/**
 * Takes the copy from stdin. Runs the copy once before it renames the copy into place, so that a truncated or
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
  /** Copy without a question. */
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
  const scriptArgv = installTargetOf(address.url);
  try {
    return await connectServer(address, onConnectionState);
  } catch (error) {
    const host = missingHostOf(error);
    if (host === null) throw error;
    await install(address.url, host, options, scriptArgv(INSTALL_SCRIPT));
  }
  return connectServer(address, onConnectionState);
}

function installTargetOf(url: string): (script: string) => string[] {
  const target = parseConnectUrl(url);
  if (target.type === "socket")
    throw new UsageError(`--install is for ssh:// and docker://; a server at \`${url}\` must already run`);
  if (target.scriptArgv === null)
    throw new UsageError(
      "--install does not go with exec: only its command knows the way, and runs nothing but `procwire connect`; put procwire there as you would any program",
    );
  return target.scriptArgv;
}

/** Returns the platform of a remote host without procwire, or null for other errors. */
function missingHostOf(error: unknown): HostPlatform | null {
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
  // Before anything is fetched for nothing.
  if (!assumeYes) requireTerminal();
  using packages = new PlatformPackages({ from, log: logLine });
  const parts = await packagesFor(url, host, packages, from !== undefined);
  using copy = new SelfPackage(parts);
  const place = `${new URL(url).host}:~/${REMOTE_INSTALL_DIRECTORY}`;
  const size = `${Math.ceil(copy.bytes / 1_000_000)} MB`;
  if (!assumeYes) await ask(`copy procwire (${size}) to ${place}? [y/N] `);
  logLine(`copying ${size} to ${place}`);
  await send(copy.tarArgv, argv, place);
}

/** Returns the packages to install: this one if it runs there, otherwise that of the platform, plus Node if missing. */
async function packagesFor(
  url: string,
  host: HostPlatform,
  packages: PlatformPackages,
  isNamed: boolean,
): Promise<PlatformFiles> {
  const libc = host.libc ?? "glibc";
  const isLikeHere =
    host.platform === `${type()} ${machine()}` && (host.libc ?? currentLibc()) === currentLibc();
  if (isLikeHere && !isNamed) return { node: process.execPath };
  const [system, processor = ""] = host.platform.split(" ");
  const cpu = PROCESSORS.get(processor);
  const told = `${url} is ${host.platform}${host.libc === null ? "" : ` with ${host.libc}`}`;
  if (system !== "Linux" || cpu === undefined)
    throw new Error(`${told}, and there is no package for it; Node 24 and a compiler there may do`);
  const platform = `linux-${cpu}${libc === "musl" ? "-musl" : ""}`;
  try {
    const native = await packages.native(platform);
    if (isLikeHere) return { native, node: process.execPath };
    if (isSupportedNode(host.nodeVersion)) return { native, node: null };
    // There is no npm package of Node for musl.
    if (libc === "musl")
      throw new Error("no Node package for musl; install Node 24 on the host and try again");
    return { native, node: await packages.node(platform) };
  } catch (cause) {
    const instead = `use --install-from with a file or directory, or run \`npm install --global procwire\` there, which brings @procwire/${platform}`;
    throw new Error(
      `${told}, and what runs here is for ${type()} ${machine()} with ${currentLibc()}: ${errorMessage(cause)}; ${instead}`,
      { cause },
    );
  }
}

function logLine(text: string): void {
  process.stderr.write(`procwire: ${text}\n`);
}

function requireTerminal(): void {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new Error(
      "--install asks before it copies procwire to another host, and there is no terminal to ask on; add --yes",
    );
}

async function ask(question: string): Promise<void> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await terminal.question(question);
    if (!/^y(es)?$/i.test(answer.trim()))
      throw new Error("procwire was not copied, because you did not say yes");
  } finally {
    terminal.close();
  }
}

/** Resolves when the remote host has installed the copy. */
async function send(tarArgv: string[], farArgv: string[], place: string): Promise<void> {
  const [tarName = "", ...tarWords] = tarArgv;
  const [farName = "", ...farWords] = farArgv;
  const tar = spawn(tarName, tarWords, { stdio: ["ignore", "pipe", "pipe"] });
  const far = spawn(farName, farWords, { stdio: ["pipe", "ignore", "pipe"] });
  const [packed, unpacked] = [ended(tar, tarName), ended(far, farName)];
  // Either's end says why.
  const [, ...problems] = await Promise.all([
    pipeline(tar.stdout, far.stdin).catch(() => undefined),
    unpacked,
    packed,
  ]);
  const why = problems.find((problem) => problem !== null);
  if (why) throw new Error(`procwire could not be copied to ${place}: ${why}`);
}

/** Why a program failed; null when it did not. */
function ended(child: ChildProcess, name: string): Promise<string | null> {
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-SHOWN_STDERR_CHARS);
  });
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(`cannot run \`${name}\`: ${error.message}`));
    child.once("close", (code, signal) => {
      if (code === 0) resolve(null);
      else resolve(said.trim() || `\`${name}\` ended with ${code ?? signal}`);
    });
  });
}
