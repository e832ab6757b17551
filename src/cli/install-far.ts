import { type ChildProcess, spawn } from "node:child_process";
import { machine, type } from "node:os";
import { createInterface } from "node:readline/promises";
import { pipeline } from "node:stream/promises";
import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";
import { INSTALLED_BELOW_HOME, parseConnectUrl } from "../client/node/connect-url.ts";
import { PipeError } from "../client/node/pipe-stream.ts";
import { connectServer, type ServerAddress } from "../host/connect-server.ts";
import { OwnCopy } from "../host/own-copy.ts";
import { UsageError } from "./command.ts";

/** The packages that npm installs for a platform, by how a host tells itself. */
const PACKAGES: Record<string, string> = {
  "Linux x86_64": "@procwire/linux-x64",
  "Linux aarch64": "@procwire/linux-arm64",
};
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

/** Connects, and where the far host has no procwire, copies this one there first. */
export async function connectInstalling(
  address: ServerAddress,
  isAgreed: boolean,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const scriptArgv = installableAt(address.url);
  try {
    return await connectServer(address, onConnectionState);
  } catch (error) {
    const platform = missingOn(error);
    if (platform === null) throw error;
    await install(address.url, platform, isAgreed, scriptArgv(INSTALL_SCRIPT));
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

/** The platform of a far host without procwire; null where something else failed. */
function missingOn(error: unknown): string | null {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof PipeError) return cause.platform;
  return null;
}

async function install(url: string, platform: string, isAgreed: boolean, argv: string[]): Promise<void> {
  const here = `${type()} ${machine()}`;
  if (platform !== here) {
    const brings = PACKAGES[platform];
    const instead =
      brings === undefined
        ? "there is no package for it; Node 24 and a compiler there may do"
        : `run \`npm install --global procwire\` there, which brings ${brings}`;
    throw new Error(`${url} is ${platform}, and what runs here is for ${here}; ${instead}`);
  }
  using copy = new OwnCopy();
  const place = `${new URL(url).host}:~/${INSTALLED_BELOW_HOME}`;
  const size = `${Math.ceil(copy.bytes / 1_000_000)} MB`;
  if (!isAgreed) await ask(`copy procwire (${size}) to ${place}? [y/N] `);
  process.stderr.write(`procwire: copying ${size} to ${place}\n`);
  await send(copy.tarArgv, argv, place);
}

async function ask(question: string): Promise<void> {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new Error(
      "--install asks before it copies procwire to another host, and there is no terminal to ask on; add --yes",
    );
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
