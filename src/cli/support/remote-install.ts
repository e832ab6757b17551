import { type ChildProcess, spawn } from "node:child_process";
import { machine, type } from "node:os";
import { createInterface } from "node:readline/promises";
import { pipeline } from "node:stream/promises";
import { messageOf } from "../../base/error-message.ts";
import type { ConnectionState, ExecServerClient } from "../../client/exec-server-client.ts";
import { INSTALLED_BELOW_HOME, parseConnectUrl } from "../../client/node/connect-url.ts";
import { type BareHost, PipeError } from "../../client/node/pipe-transport.ts";
import { connectServer, type ServerAddress } from "../../host/connect-server.ts";
import { isNewEnough, ownLibc, PlatformPackages } from "../../host/platform-packages.ts";
import { OwnCopy, type PlatformParts } from "../../host/self-package.ts";
import { UsageError } from "../command.ts";

/** The processors that have packages, as a host tells them and as npm does. */
const PROCESSORS: Record<string, string> = { x86_64: "x64", aarch64: "arm64" };
const SHOWN_STDERR_CHARS = 600;

/**
 * Takes the copy from stdin. It is tried before it is put in its place in one step, so that a copy that was cut short or
 * cannot run there is never found by anybody.
 */
const INSTALL_SCRIPT = [
  "set -e",
  "umask 077",
  `to="$HOME/${INSTALLED_BELOW_HOME}"`,
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
  isAgreed: boolean;
  /** Where the package of the far host's platform is; undefined: wherever it can be found. */
  from?: string | undefined;
}

/** Connects, and where the far host has no procwire, copies this one there first. */
export async function connectInstalling(
  address: ServerAddress,
  options: InstallOptions,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const scriptArgv = installableAt(address.url);
  try {
    return await connectServer(address, onConnectionState);
  } catch (error) {
    const host = missingOn(error);
    if (host === null) throw error;
    await install(address.url, host, options, scriptArgv(INSTALL_SCRIPT));
  }
  return connectServer(address, onConnectionState);
}

function installableAt(url: string): (script: string) => string[] {
  const target = parseConnectUrl(url);
  if (target.type === "socket")
    throw new UsageError(
      `--install is for ssh:// and docker://; a server at \`${url}\` is there already, or somebody has to start it`,
    );
  if (target.scriptArgv === null)
    throw new UsageError(
      "--install does not go with exec: only its command knows the way, and runs nothing but `procwire connect`; put procwire there as you would any program",
    );
  return target.scriptArgv;
}

/** A far host without procwire; null where something else failed. */
function missingOn(error: unknown): BareHost | null {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof PipeError) return cause.bareHost;
  return null;
}

async function install(
  url: string,
  host: BareHost,
  { isAgreed, from }: InstallOptions,
  argv: string[],
): Promise<void> {
  // Before anything is fetched for nothing.
  if (!isAgreed) requireTerminal();
  using packages = new PlatformPackages({ from, say });
  const parts = await partsFor(url, host, packages, from !== undefined);
  using copy = new OwnCopy(parts);
  const place = `${new URL(url).host}:~/${INSTALLED_BELOW_HOME}`;
  const size = `${Math.ceil(copy.bytes / 1_000_000)} MB`;
  if (!isAgreed) await ask(`copy procwire (${size}) to ${place}? [y/N] `);
  say(`copying ${size} to ${place}`);
  await send(copy.tarArgv, argv, place);
}

/** What runs here where that runs there too; else the package of that platform, and a Node where the host has none. */
async function partsFor(
  url: string,
  host: BareHost,
  packages: PlatformPackages,
  isNamed: boolean,
): Promise<PlatformParts> {
  const libc = host.libc ?? "glibc";
  const isLikeHere = host.platform === `${type()} ${machine()}` && (host.libc ?? ownLibc()) === ownLibc();
  if (isLikeHere && !isNamed) return { node: process.execPath };
  const [system, processor = ""] = host.platform.split(" ");
  const cpu = PROCESSORS[processor];
  const told = `${url} is ${host.platform}${host.libc === null ? "" : ` with ${host.libc}`}`;
  if (system !== "Linux" || cpu === undefined)
    throw new Error(`${told}, and there is no package for it; Node 24 and a compiler there may do`);
  const platform = `linux-${cpu}${libc === "musl" ? "-musl" : ""}`;
  try {
    const native = await packages.native(platform);
    if (isLikeHere) return { native, node: process.execPath };
    if (isNewEnough(host.nodeVersion)) return { native, node: null };
    // Nobody publishes one for musl.
    if (libc === "musl") throw new Error("its Node must be its own; install Node 24 there and try again");
    return { native, node: await packages.node(platform) };
  } catch (cause) {
    const instead = `give --install-from a file or folder, or run \`npm install --global procwire\` there, which brings @procwire/${platform}`;
    throw new Error(
      `${told}, and what runs here is for ${type()} ${machine()} with ${ownLibc()}: ${messageOf(cause)}; ${instead}`,
      { cause },
    );
  }
}

function say(text: string): void {
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

/** Resolves when the far host has it in place. */
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
