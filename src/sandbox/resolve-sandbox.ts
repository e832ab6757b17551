import { lstat, realpath, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { messageOf } from "../base/error-message.ts";
import type { SandboxScope, StartParams } from "../exec/exec-process.ts";
import type { EventLog } from "../exec/log/event-log.ts";
import type { ResolvedSandbox } from "../exec/resolved-sandbox.ts";
import { RequestError } from "../protocol/errors.ts";
import { cwdFromUri } from "../protocol/path-uri.ts";
import type { SandboxPolicy, SandboxRoot } from "./bubblewrap.ts";
import { isInside } from "./bubblewrap.ts";
import { HiddenFiles, hidden } from "./masked-paths.ts";
import { MountPoints } from "./mount-points.ts";
import { pinFolder, pinRoot } from "./pinned-roots.ts";
import { raiseWalls } from "./sandbox-command.ts";
import { DENIAL_TAIL_BYTES, isSandboxDenial } from "./sandbox-denial.ts";
import { sandboxPrograms } from "./sandbox-probe.ts";
import type { IntentEntry, IntentPlace, SandboxIntent } from "./sandbox-request.ts";
import { cannotEnforce, parseSandboxIntent } from "./sandbox-request.ts";
import { type HeldTmp, lastingTmps } from "./shared-tmp.ts";

/** What is to be walled. Without a directory there is no workspace either, unless the intent names one. */
export type WalledStart = Pick<StartParams, "argv" | "env" | "arg0" | "sandboxScope"> & {
  cwd: string | null;
  /** A descriptor of the exact directory that `cwd` has to be; the caller's. */
  directory?: number | undefined;
};

/** What the walls of a host have in common. */
export interface SandboxHost {
  hidden: HiddenFiles;
  /** A walled process that has the network runs from now on; returns what to call at its end. */
  onNetworked(pid: number): () => void;
}

const PLAIN_HOST: SandboxHost = { hidden: new HiddenFiles([]), onNetworked: () => () => undefined };

/** Of the whole program: two hosts in it may stand on the same folder. */
const mountPoints = new MountPoints();

/**
 * Turns the wire's sandbox intent into walls on this host. What cannot be held is refused with a RequestError; nothing
 * is ever run with less than was asked for.
 */
export async function resolveSandbox(
  value: unknown,
  start: WalledStart,
  host: SandboxHost = PLAIN_HOST,
): Promise<ResolvedSandbox> {
  const intent = parseSandboxIntent(value);
  if (intent.type === "none") return { type: "none" };
  const programs = sandboxPrograms();
  if (!programs) throw cannotEnforce();
  const held: string[] = [];
  let tmp: HeldTmp | null = null;
  const release = async () => {
    await Promise.all([...held.splice(0).map((path) => mountPoints.release(path)), tmp?.release()]);
  };
  try {
    const policy = await policyOf(intent, start, (path) => {
      mountPoints.hold(path);
      held.push(path);
    });
    tmp = holdTmp(intent, policy, start.sandboxScope);
    if (tmp) policy.tmp = { directory: tmp.directory };
    const writable = policy.roots.filter(({ access }) => access === "write");
    const roots = [...policy.roots, ...host.hidden.roots(writable), ...hiddenServices(intent)];
    const command = { argv: withArg0(start), env: start.env, directory: start.directory };
    const walls = raiseWalls({ ...policy, roots }, command, programs);
    const { file, argv, env, descriptors } = walls;
    const { network } = policy;
    let onEnded = () => {};
    return {
      type: "walls",
      child: { file, argv, env, descriptors },
      sandboxType: "linuxSeccomp",
      wasDenied: (exit, log) => isSandboxDenial(exit, outputTail(log), { network }),
      started: (pid) => {
        walls[Symbol.dispose]();
        if (pid === null) void release();
        else if (network) onEnded = host.onNetworked(pid);
      },
      ended: () => {
        onEnded();
        return release();
      },
    };
  } catch (error) {
    await release();
    throw error instanceof RequestError ? error : cannotEnforce({ cause: error, reason: reasonOf(error) });
  }
}

/**
 * The /tmp that lasts, where one is asked for. Not with a root inside /tmp: bubblewrap would make that root's place in a folder
 * that earlier commands could write, and follow a link they left there.
 */
function holdTmp(
  intent: WallsIntent,
  policy: SandboxPolicy,
  scope: SandboxScope | undefined,
): HeldTmp | null {
  if (policy.tmp !== "private" || intent.lastingTmp === null || !scope) return null;
  if (policy.roots.some(({ path }) => path === "/tmp" || isInside(path, "/tmp"))) return null;
  return lastingTmps.hold(scope, intent.lastingTmp);
}

/** The policy of an intent on this host: places become paths, links are followed, what is not there is settled. */
async function policyOf(
  intent: WallsIntent,
  start: WalledStart,
  hold: (path: string) => void,
): Promise<SandboxPolicy> {
  const own = start.cwd === null || start.cwd.startsWith("/") ? start.cwd : cwdFromUri(start.cwd);
  const cwd = own ?? "/";
  const tmp = intent.privateTmp ? "private" : "shared";
  const common = { network: intent.network, tmp } as const;
  if (intent.files.type === "unrestricted")
    return { ...common, cwd, devices: "all", roots: [{ path: "/", access: "write" }] };
  const { entries } = intent.files;
  // Where the root is not seen, neither are the links on the way to the directory.
  const rootSeen = entries.some((entry) => entry.place.type === "root" && entry.access !== "deny");
  const seenCwd = rootSeen && tmp === "shared" ? cwd : await realpath(cwd).catch(() => cwd);
  const workspace = intent.cwd ?? own;
  const context: PlaceContext = {
    workspaceRoots: intent.workspaceRoots ?? (workspace === null ? null : [workspace]),
    tmpdirs: intent.temporaryDirectories ?? tmpdirOf(start.env),
    scope: start.sandboxScope,
    hold,
  };
  // Write entries first: whether a missing or linked place matters depends on what is writable around it.
  const writable = await settleAll(entries.filter(isWrite), context, []);
  const others = await settleAll(
    entries.filter((entry) => !isWrite(entry)),
    context,
    writable,
  );
  // An empty /tmp hides the directory, unless it is one of the roots.
  const hiddenCwd: SandboxRoot[] =
    tmp === "private" && isInside(seenCwd, "/tmp") ? [{ path: seenCwd, access: "read", opened: true }] : [];
  return { ...common, cwd: seenCwd, devices: "minimal", roots: [...hiddenCwd, ...writable, ...others] };
}

type WallsIntent = Extract<SandboxIntent, { type: "walls" }>;

interface PlaceContext {
  /** Null: neither the intent nor the start says where the workspace is. */
  workspaceRoots: readonly string[] | null;
  tmpdirs: readonly string[];
  scope: object | undefined;
  /** Puts an empty folder where nothing is, for as long as the walls stand. */
  hold: (path: string) => void;
}

const isWrite = (entry: IntentEntry) => entry.access === "write";

/** What programs need to run at all, on the usual Linux distributions. */
const MINIMAL_ROOTS = ["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib32", "/lib64", "/nix/store", "/opt"];

async function settleAll(
  entries: readonly IntentEntry[],
  context: PlaceContext,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot[]> {
  const settled = entries.flatMap((entry) =>
    pathsOf(entry.place, context).map((path) => settle(path, entry, context, writable)),
  );
  return (await Promise.all(settled)).filter((root) => root !== null);
}

function pathsOf(place: IntentPlace, context: PlaceContext): readonly string[] {
  switch (place.type) {
    case "root":
      return ["/"];
    case "minimal":
      return MINIMAL_ROOTS;
    case "slashTmp":
      return ["/tmp"];
    case "tmpdir":
      return context.tmpdirs;
    case "workspace": {
      const { subpath } = place;
      const { workspaceRoots } = context;
      if (workspaceRoots === null)
        throw cannotEnforce({ reason: "it names a workspace, but gives neither `cwd` nor `workspaceRoots`" });
      return subpath === null ? workspaceRoots : workspaceRoots.map((root) => join(root, subpath));
    }
    case "path":
      return [place.path];
  }
}

/** A path that comes and goes this often while it is looked at is no race any more. */
const MOST_LOOKS = 20;

/**
 * Where one place of an intent is. Between two looks at it a mount point of other walls may have been removed, and seemed to
 * be a folder of somebody's at the first: then it is looked at again.
 */
async function settle(
  path: string,
  entry: IntentEntry,
  context: PlaceContext,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot | null> {
  for (let looks = 1; ; looks++) {
    try {
      return await settleOnce(path, entry, context, writable);
    } catch (error) {
      const hasVanished = error instanceof Error && "code" in error && error.code === "ENOENT";
      if (!hasVanished || looks >= MOST_LOOKS) throw error;
    }
  }
}

async function settleOnce(
  path: string,
  entry: IntentEntry,
  context: PlaceContext,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot | null> {
  const { access } = entry;
  // Programs look for these by name, so links among them are not followed away.
  if (entry.place.type === "minimal") return { path, access };
  const existing = await nearestExisting(path);
  const isThere = existing.rest === "" && !mountPoints.has(existing.real);
  if (isThere && access !== "write") await refuseLink(path, writable);
  const real = join(existing.real, existing.rest);
  pinRoot(context.scope, path, real);
  if (access !== "write" && isWritable(dirname(real), writable)) pinFolder(context.scope, dirname(real));
  // A walled command could create it, if nothing stood in its place.
  if (!isThere && access !== "write" && isWritable(existing.real, writable)) {
    const blocked = mountPoints.has(existing.real)
      ? existing.real
      : join(existing.real, existing.rest.split("/")[0] ?? "");
    if (entry.missing === "skip" && !mountPoints.has(blocked)) return null;
    return holdUnlessBarred(context, blocked)
      ? { path: blocked, access, kind: "directory", opened: true }
      : null;
  }
  // Not there and not creatable: nothing can be read from it or written to it.
  if (!isThere) return null;
  const kind = (await stat(existing.real)).isDirectory() ? "directory" : "file";
  return { path: existing.real, access, kind, opened: existing.real !== "/" };
}

/** False where this user may not create anything: then a walled command, the same user without capabilities, may not either. */
function holdUnlessBarred(context: PlaceContext, path: string): boolean {
  try {
    context.hold(path);
    return true;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (code === "EACCES" || code === "EPERM" || code === "EROFS") return false;
    throw error;
  }
}

/** A mount covers what a link leads to; a command that may write beside the link can point it elsewhere. */
async function refuseLink(path: string, writable: readonly SandboxRoot[]): Promise<void> {
  if (path === "/") return;
  const parent = await realpath(dirname(path));
  if (!isWritable(parent, writable)) return;
  if ((await lstat(join(parent, basename(path)))).isSymbolicLink())
    throw cannotEnforce({ reason: `\`${path}\` is a symbolic link, which a sandbox cannot keep read-only` });
}

function isWritable(path: string, writable: readonly SandboxRoot[]): boolean {
  return writable.some((root) => root.path === path || isInside(path, root.path));
}

/** The part of a path that is there, free of links, and what is missing below it. */
async function nearestExisting(path: string): Promise<{ real: string; rest: string }> {
  const real = await realpath(path).catch(nullIfMissing);
  if (real !== null || path === "/") return { real: real ?? "/", rest: "" };
  const above = await nearestExisting(dirname(path));
  return { real: above.real, rest: join(above.rest, basename(path)) };
}

function nullIfMissing(error: unknown): null {
  const code = error instanceof Error && "code" in error ? error.code : null;
  if (code === "ENOENT" || code === "ENOTDIR") return null;
  throw cannotEnforce({ cause: error });
}

function tmpdirOf(env: Readonly<Record<string, string>>): string[] {
  const tmpdir = env.TMPDIR ?? process.env.TMPDIR;
  return tmpdir?.startsWith("/") ? [tmpdir] : [];
}

/** Sockets of the host that give a command more rights than the walls do. With the network off no command reaches them. */
const HOST_SERVICES = [
  "/run/docker.sock",
  "/run/containerd",
  "/run/crio",
  "/run/podman",
  "/run/libvirt",
  "/run/snapd.socket",
  "/run/dbus",
  "/run/systemd/private",
  "/run/user",
];

function hiddenServices(intent: WallsIntent): SandboxRoot[] {
  if (!intent.network) return [];
  const named =
    intent.files.type === "unrestricted"
      ? []
      : intent.files.entries.flatMap(({ place }) => (place.type === "path" ? [place.path] : []));
  // An intent that names such a service asks for it.
  const others = HOST_SERVICES.filter((path) => !named.some((name) => name === path || isInside(name, path)));
  return others.map(hidden).filter((root) => root !== null);
}

function reasonOf(error: unknown): string {
  return messageOf(error);
}

/** The walls' own programs stand first, so the name a program sees as its own is given to it inside. */
function withArg0({ argv, arg0 }: WalledStart): string[] {
  return arg0 === undefined || arg0 === null ? argv : ["bash", "-c", 'exec -a "$0" "$@"', arg0, ...argv];
}

function outputTail(log: EventLog): Uint8Array {
  const streams = (["stdout", "stderr", "pty"] as const).map((stream) => {
    const buffer = log.headTail(stream);
    return buffer.bytes().subarray(-DENIAL_TAIL_BYTES / 2);
  });
  return Buffer.concat(streams);
}
