import { lstat, realpath, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { hasErrorCode } from "../base/error-code.ts";
import type { StartParams } from "../exec/exec-process.ts";
import { cwdFromUri } from "../protocol/path-uri.ts";
import { isStrictlyBelow, isWithin, type SandboxPolicy, type SandboxRoot } from "./bubblewrap.ts";
import { mountPoints } from "./mount-points.ts";
import { pinDirectory, pinRoot } from "./pinned-roots.ts";
import { protectUserPaths } from "./protected-user-paths.ts";
import { MINIMAL_ROOTS } from "./required-sandbox.ts";
import type { SandboxEntry, SandboxLocation, SandboxRequest } from "./sandbox-request.ts";
import { unenforceableSandbox } from "./sandbox-request.ts";

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

/** Resolves locations to host paths, follows links and decides about missing paths. */
export async function resolvePolicy(
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

export type EnforcedSandboxRequest = Extract<SandboxRequest, { type: "sandboxed" }>;

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
