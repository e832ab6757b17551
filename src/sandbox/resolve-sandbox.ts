import { lstat, realpath, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import { errorMessage } from "../base/error-message.ts";
import { MISSING_RUNTIME_SUPPORT } from "../base/js-runtime.ts";
import type { ListenerSupport } from "../exec/backend/listener-channel.ts";
import type { ResolvedSandbox, RestoredSandbox, SandboxResources } from "../exec/backend/resolved-sandbox.ts";
import { sandboxRequirementError } from "../exec/backend/sandbox-requirement.ts";
import type { SandboxScope, StartParams } from "../exec/exec-process.ts";
import type { EventLog } from "../exec/log/event-log.ts";
import { RequestError } from "../protocol/errors.ts";
import { cwdFromUri } from "../protocol/path-uri.ts";
import { isStrictlyBelow, isWithin, type SandboxPolicy, type SandboxRoot } from "./bubblewrap.ts";
import { hostServicePaths } from "./host-service-sockets.ts";
import type { LandlockSupport } from "./landlock-rules.ts";
import { MaskedPaths, maskFor } from "./masked-paths.ts";
import { MountPoints } from "./mount-points.ts";
import { pinDirectory, pinRoot, pinsOf, restorePins } from "./pinned-roots.ts";
import { protectUserPaths } from "./protected-user-paths.ts";
import { enforceRequirement, MINIMAL_ROOTS } from "./required-sandbox.ts";
import { buildSandboxCommand } from "./sandbox-command.ts";
import { DENIAL_TAIL_BYTES, isSandboxDenial } from "./sandbox-denial.ts";
import { sandboxPrograms } from "./sandbox-probe.ts";
import type { SandboxEntry, SandboxLocation, SandboxRequest } from "./sandbox-request.ts";
import { parseSandboxRequest, unenforceableSandbox } from "./sandbox-request.ts";
import { type SharedTmpLease, sharedTmpDirectories } from "./shared-tmp.ts";

/** A command to sandbox. Without `cwd` there is no workspace, unless the request names one. */
export type SandboxTarget = Pick<StartParams, "argv" | "env" | "arg0" | "sandboxScope" | "sandboxRequirement"> & {
  cwd: string | null;
  /** A descriptor of the directory that `cwd` must be. The caller owns it. */
  directory?: number | undefined;
  /**
   * Ports of a managed network: the sandbox has its own network namespace with loopback only and listens at these ports.
   * The caller serves the listeners. Absent: the request decides about the network.
   */
  listenPorts?: readonly number[] | undefined;
  /** Real paths of host files that are readable, also where the sandbox hides their directory. */
  readableFiles?: readonly string[] | undefined;
};

/** Settings that all sandboxes of a host share. */
export interface SandboxHost {
  maskedPaths: MaskedPaths;
  /** Called when a sandboxed process with network access starts; returns a function to call when it has exited. */
  onNetworkAllowed(pid: number): () => void;
  /** Null if this host supports no managed networks. */
  listenerSupport: ListenerSupport | null;
  /** Null if kernel or addon have no Landlock rules for files. */
  landlock: LandlockSupport | null;
}

const PLAIN_HOST: SandboxHost = {
  maskedPaths: new MaskedPaths([]),
  onNetworkAllowed: () => () => undefined,
  listenerSupport: null,
  landlock: null,
};

/** Shared by all hosts of this server, because two of them may use the same directory. */
const mountPoints = new MountPoints();

/**
 * Resolves a sandbox request of the wire protocol on this host. Throws a RequestError if the request cannot be enforced
 * completely; a command never runs with a weaker sandbox.
 */
export async function resolveSandbox(
  value: unknown,
  start: SandboxTarget,
  host: SandboxHost = PLAIN_HOST,
): Promise<ResolvedSandbox> {
  const { listenPorts, sandboxRequirement: requirement } = start;
  const parsed = parseSandboxRequest(value, { hasManagedNetwork: listenPorts !== undefined });
  if (parsed.type === "none") {
    if (requirement) throw sandboxRequirementError(requirement, "the request has no restrictions");
    return { type: "none" };
  }
  const listeners = listenPorts && { ports: listenPorts, support: requireListenerSupport(host) };
  const request = listeners ? { ...parsed, network: false } : parsed;
  const programs = sandboxPrograms();
  if (!programs) throw unenforceableSandbox({ reason: MISSING_RUNTIME_SUPPORT ?? undefined });
  const heldMountPoints: string[] = [];
  let tmp: SharedTmpLease | null = null;
  const release = async () => {
    await Promise.all([mountPoints.release(heldMountPoints.splice(0)), tmp?.release()]);
  };
  try {
    const policy = await resolvePolicy(request, start, (path, placeholder) => {
      mountPoints.acquire(path, placeholder);
      heldMountPoints.push(path);
    });
    // A managed network gives access to hosts that the client chooses.
    const reached = { ...policy, network: policy.network || listeners !== undefined };
    if (requirement) await enforceRequirement(requirement, reached);
    tmp = acquireSharedTmp(request, policy, start.sandboxScope);
    if (tmp) policy.tmp = { directory: tmp.directory };
    const { readableFiles = [] } = start;
    const readable = readableFiles.map((path): SandboxRoot => ({ path, access: "read", kind: "file", opened: true }));
    const masked = [...host.maskedPaths.roots(policy.roots), ...maskedServices(request)];
    const roots = [...policy.roots, ...masked, ...readable];
    const { landlock } = host;
    const command = { argv: withArg0(start), env: start.env, directory: start.directory, listeners, landlock };
    const sandboxCommand = buildSandboxCommand({ ...policy, roots }, command, programs);
    const { file, argv, env, descriptors, channel, hasLandlockRules } = sandboxCommand;
    const { network } = policy;
    let onEnded = () => {};
    return {
      type: "sandboxed",
      child: { file, argv, env, descriptors, landlock: !hasLandlockRules && !programs.isSetuid },
      sandboxType: SANDBOX_TYPE,
      listeners: channel?.listeners,
      resources: {
        network,
        mountPoints: heldMountPoints.map((path) => mountPoints.describe(path)),
        tmp: tmp && request.sharedTmp !== null ? { name: request.sharedTmp, directory: tmp.outer } : undefined,
        pins: pinsOf(start.sandboxScope),
      },
      isDenial: (exit, log) => isSandboxDenial(exit, outputTail(log), { network }),
      started: (pid) => {
        sandboxCommand[Symbol.dispose]();
        if (pid === null) {
          channel?.close();
          void release();
        } else if (network) onEnded = host.onNetworkAllowed(pid);
      },
      ended: () => {
        channel?.close();
        onEnded();
        return release();
      },
    };
  } catch (error) {
    await release();
    throw error instanceof RequestError ? error : unenforceableSandbox({ cause: error, reason: errorMessage(error) });
  }
}

function requireListenerSupport({ listenerSupport }: SandboxHost): ListenerSupport {
  if (listenerSupport) return listenerSupport;
  throw unenforceableSandbox({ reason: "a managed network requires the native addon; run `procwire doctor`" });
}

const SANDBOX_TYPE = "linuxSeccomp";

/** Takes over the sandbox of a persistent process from the server that started it. */
export function restoreSandbox(
  { network, mountPoints: held, tmp, pins }: SandboxResources,
  pid: number,
  host: SandboxHost = PLAIN_HOST,
): RestoredSandbox {
  for (const { path, contents } of held) mountPoints.adopt(path, contents);
  const shared = tmp ? sharedTmpDirectories.adopt(tmp.directory, tmp.name) : null;
  const onEnded = network ? host.onNetworkAllowed(pid) : () => undefined;
  return {
    sandboxType: SANDBOX_TYPE,
    isDenial: (exit, log) => isSandboxDenial(exit, outputTail(log), { network }),
    joinScope: (scope) => {
      restorePins(scope, pins);
      shared?.joinScope(scope);
    },
    ended: async () => {
      onEnded();
      await Promise.all([mountPoints.release(held.map(({ path }) => path)), shared?.release()]);
    },
  };
}

/**
 * Returns the shared /tmp if the request names one. Returns null if a root is inside /tmp: bubblewrap would create its
 * mount point in a directory that earlier commands could write, and follow a link in it.
 */
function acquireSharedTmp(
  request: EnforcedSandboxRequest,
  policy: SandboxPolicy,
  scope: SandboxScope | undefined,
): SharedTmpLease | null {
  if (policy.tmp !== "private" || request.sharedTmp === null || !scope) return null;
  if (policy.roots.some(({ path }) => isWithin(path, "/tmp"))) return null;
  return sharedTmpDirectories.acquire(scope, request.sharedTmp);
}

/** Resolves locations to host paths, follows links and decides about missing paths. */
async function resolvePolicy(
  request: EnforcedSandboxRequest,
  start: SandboxTarget,
  acquire: ResolveContext["acquireMountPoint"],
): Promise<SandboxPolicy> {
  const startCwd = start.cwd === null || start.cwd.startsWith("/") ? start.cwd : cwdFromUri(start.cwd);
  const cwd = startCwd ?? "/";
  const tmp = request.privateTmp ? "private" : "shared";
  const common = { network: request.network, tmp } as const;
  if (request.files.type === "unrestricted")
    return { ...common, cwd, devices: "all", roots: [{ path: "/", access: "write" }] };
  const { entries } = request.files;
  // If the root is not visible, neither are the links in the path of the working directory.
  const isRootVisible = entries.some((entry) => entry.location.type === "root" && entry.access !== "deny");
  const visibleCwd = isRootVisible && tmp === "shared" ? cwd : await realpath(cwd).catch(() => cwd);
  const workspace = request.cwd ?? startCwd;
  const context: ResolveContext = {
    workspaceRoots: request.workspaceRoots ?? (workspace === null ? null : [workspace]),
    tmpdirs: request.temporaryDirectories ?? tmpdirOf(start.env),
    scope: start.sandboxScope,
    acquireMountPoint: acquire,
  };
  // Write entries first: whether a missing or linked path matters depends on the writable roots around it.
  const writable = await resolveEntries(entries.filter(isWrite), context, []);
  const others = await resolveEntries(
    entries.filter((entry) => !isWrite(entry)),
    context,
    writable,
  );
  const userRoots = request.protectStartUpFiles
    ? await resolveEntries(protectUserPaths(start.env, writable), context, writable)
    : [];
  // A private /tmp hides a working directory inside /tmp, unless it is one of the roots.
  const hiddenCwd: SandboxRoot[] =
    tmp === "private" && isStrictlyBelow(visibleCwd, "/tmp")
      ? [{ path: visibleCwd, access: "read", opened: true }]
      : [];
  const roots = [...hiddenCwd, ...writable, ...others, ...userRoots];
  return { ...common, cwd: visibleCwd, devices: "minimal", roots };
}

type EnforcedSandboxRequest = Extract<SandboxRequest, { type: "sandboxed" }>;

interface ResolveContext {
  /** Null if neither the request nor the start names a workspace. */
  workspaceRoots: readonly string[] | null;
  tmpdirs: readonly string[];
  scope: object | undefined;
  /** Creates a placeholder for a missing path until the sandbox ends: a file with these contents, or a directory. */
  acquireMountPoint: (path: string, placeholder: string | undefined) => void;
}

const isWrite = (entry: SandboxEntry) => entry.access === "write";

async function resolveEntries(
  entries: readonly SandboxEntry[],
  context: ResolveContext,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot[]> {
  const located = entries.flatMap((entry) => expandLocation(entry.location, context).map((path) => ({ path, entry })));
  // Waits for all, even if one fails: a mount point that is acquired after the release would never be removed.
  const settled = await Promise.allSettled(
    located.map(({ path, entry }) => resolveEntry(path, entry, context, writable)),
  );
  return settled.flatMap((outcome) => {
    if (outcome.status === "rejected") throw outcome.reason;
    return outcome.value === null ? [] : [outcome.value];
  });
}

function expandLocation(location: SandboxLocation, context: ResolveContext): readonly string[] {
  switch (location.type) {
    case "root":
      return ["/"];
    case "minimal":
      return MINIMAL_ROOTS;
    case "slashTmp":
      return ["/tmp"];
    case "tmpdir":
      return context.tmpdirs;
    case "workspace": {
      const { subpath } = location;
      const { workspaceRoots } = context;
      if (workspaceRoots === null)
        throw unenforceableSandbox({
          reason: "it names a workspace, but gives neither `cwd` nor `workspaceRoots`",
        });
      return subpath === null ? workspaceRoots : workspaceRoots.map((root) => join(root, subpath));
    }
    case "path":
      return [location.path];
  }
}

/** Maximum attempts to resolve a path that changes meanwhile. More changes than this are not a race. */
const MAX_ATTEMPTS = 20;

/**
 * Returns the root of one entry, or null if nothing must be mounted for it. Retries if the path changes
 * meanwhile: another sandbox may remove its mount point, or a program may create the path: a fan-out creates `.procwire`.
 */
async function resolveEntry(
  path: string,
  entry: SandboxEntry,
  context: ResolveContext,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot | null> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await resolveEntryOnce(path, entry, context, writable);
    } catch (error) {
      const hasChanged = hasErrorCode(error, "ENOENT", "EEXIST");
      if (!hasChanged || attempt >= MAX_ATTEMPTS) throw error;
    }
  }
}

async function resolveEntryOnce(
  path: string,
  entry: SandboxEntry,
  context: ResolveContext,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot | null> {
  const { access } = entry;
  // Programs use these paths by name, so links among them are not resolved.
  if (entry.location.type === "minimal") return { path, access };
  const existing = await nearestExisting(path);
  const isPresent = existing.rest === "" && !mountPoints.has(existing.real);
  if (isPresent && access !== "write") await rejectWritableLink(path, writable);
  const real = join(existing.real, existing.rest);
  pinRoot(context.scope, path, real);
  // A command cannot move a missing directory, nor a mount point in its place.
  const parent = existing.rest === "" || mountPoints.has(existing.real) ? dirname(existing.real) : existing.real;
  if (access !== "write" && isWritable(parent, writable)) pinDirectory(context.scope, parent);
  // A sandboxed command could create a missing path, so a mount point occupies it.
  if (!isPresent && access !== "write" && isWritable(existing.real, writable)) {
    const blocked = mountPoints.has(existing.real)
      ? existing.real
      : join(existing.real, existing.rest.split("/")[0] ?? "");
    if (entry.missing === "skip" && !mountPoints.has(blocked)) return null;
    return acquireMountPoint(context, blocked, blocked === real ? entry.placeholder : undefined)
      ? { path: blocked, access, kind: "directory", opened: true }
      : null;
  }
  // A missing path that no command can create needs no mount.
  if (!isPresent) return null;
  const kind = (await stat(existing.real)).isDirectory() ? "directory" : "file";
  return { path: existing.real, access, kind, opened: existing.real !== "/" };
}

/** Returns false if this user may not create the path: then a sandboxed command of the same user may not either. */
function acquireMountPoint(context: ResolveContext, path: string, placeholder: string | undefined): boolean {
  try {
    context.acquireMountPoint(path, placeholder);
    return true;
  } catch (error) {
    if (hasErrorCode(error, "EACCES", "EPERM", "EROFS")) return false;
    throw error;
  }
}

/** A mount covers the target of a link. A command that can write to the link's directory could replace the link. */
async function rejectWritableLink(path: string, writable: readonly SandboxRoot[]): Promise<void> {
  if (path === "/") return;
  const parent = await realpath(dirname(path));
  if (!isWritable(parent, writable)) return;
  if ((await lstat(join(parent, basename(path)))).isSymbolicLink())
    throw unenforceableSandbox({
      reason: `\`${path}\` is a symbolic link, which a sandbox cannot keep read-only`,
    });
}

function isWritable(path: string, writable: readonly SandboxRoot[]): boolean {
  return writable.some((root) => isWithin(path, root.path));
}

/** Returns the real path of the nearest existing ancestor and the missing rest. */
async function nearestExisting(path: string): Promise<{ real: string; rest: string }> {
  const real = await realpath(path).catch(nullIfMissing);
  if (real !== null || path === "/") return { real: real ?? "/", rest: "" };
  const above = await nearestExisting(dirname(path));
  return { real: above.real, rest: join(above.rest, basename(path)) };
}

function nullIfMissing(error: unknown): null {
  if (hasErrorCode(error, "ENOENT", "ENOTDIR")) return null;
  throw unenforceableSandbox({ cause: error });
}

function tmpdirOf(env: Readonly<Record<string, string>>): string[] {
  const tmpdir = env.TMPDIR ?? process.env.TMPDIR;
  return tmpdir?.startsWith("/") ? [tmpdir] : [];
}

/** Without network access no sandboxed command can reach a service. */
function maskedServices(request: EnforcedSandboxRequest): SandboxRoot[] {
  if (!request.network) return [];
  const named =
    request.files.type === "unrestricted"
      ? []
      : request.files.entries.flatMap(({ location }) => (location.type === "path" ? [location.path] : []));
  // A request may name such a service to get access to it.
  const others = hostServicePaths().filter((path) => !named.some((name) => isWithin(name, path)));
  return others.map(maskFor).filter((root) => root !== null);
}

/** The sandbox's own executables come first in argv, so bash sets `argv[0]` inside the sandbox. */
function withArg0({ argv, arg0 }: SandboxTarget): string[] {
  return arg0 === undefined ? argv : ["bash", "-c", 'exec -a "$0" "$@"', arg0, ...argv];
}

function outputTail(log: EventLog): Uint8Array {
  const streams = (["stdout", "stderr", "pty"] as const).map((stream) =>
    log
      .headTail(stream)
      .bytes()
      .subarray(-DENIAL_TAIL_BYTES / 2),
  );
  return Buffer.concat(streams);
}
