import { lstat, realpath, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { EventLog } from "../exec/event-log.ts";
import type { SandboxType, StartParams } from "../exec/exec-process.ts";
import { cwdFromUri } from "../protocol/path-uri.ts";
import { sandboxPrograms } from "./available.ts";
import type { SandboxPolicy, SandboxRoot } from "./bubblewrap.ts";
import { bubblewrapArgv, isInside } from "./bubblewrap.ts";
import { DENIAL_TAIL_BYTES, isSandboxDenial } from "./denial.ts";
import type { IntentEntry, IntentPlace, SandboxIntent } from "./sandbox-intent.ts";
import { cannotEnforce, parseSandboxIntent } from "./sandbox-intent.ts";

export interface ResolvedSandbox {
  /** What to run instead. */
  argv: string[];
  sandboxType: SandboxType;
  wasDenied: (exit: { exitCode: number; signal: string | null }, log: EventLog) => boolean;
}

type Start = Pick<StartParams, "argv" | "cwd" | "env" | "arg0">;

/**
 * Turns the wire's sandbox intent into walls on this host. What cannot be held is refused with a RequestError; nothing
 * is ever run with less than was asked for.
 */
export async function resolveSandbox(value: unknown, start: Start): Promise<ResolvedSandbox> {
  const intent = parseSandboxIntent(value);
  if (intent.type === "none") return { argv: start.argv, sandboxType: "none", wasDenied: () => false };
  const programs = sandboxPrograms();
  if (!programs) throw cannotEnforce();
  const policy = await policyOf(intent, start);
  return {
    argv: bubblewrapArgv(policy, withArg0(start), programs),
    sandboxType: "linuxSeccomp",
    wasDenied: (exit, log) => isSandboxDenial(exit, outputTail(log)),
  };
}

/** The policy of an intent on this host: places become paths, links are followed, what is not there is settled. */
export async function policyOf(
  intent: Extract<SandboxIntent, { type: "walls" }>,
  start: Start,
): Promise<SandboxPolicy> {
  const cwd = start.cwd.startsWith("/") ? start.cwd : cwdFromUri(start.cwd);
  const common = { cwd, network: intent.network, tmp: "shared" } as const;
  if (intent.files.type === "unrestricted")
    return { ...common, devices: "all", roots: [{ path: "/", access: "write" }] };
  const { entries } = intent.files;
  // Where the root is not seen, neither are the links on the way to the directory.
  const rootSeen = entries.some((entry) => entry.place.type === "root" && entry.access !== "deny");
  const seenCwd = rootSeen ? cwd : await realpath(cwd).catch(() => cwd);
  const context = {
    workspaceRoots: intent.workspaceRoots ?? [intent.cwd ?? cwd],
    tmpdirs: intent.temporaryDirectories ?? tmpdirOf(start.env),
  };
  // Write entries first: whether a missing or linked place matters depends on what is writable around it.
  const writable = await settleAll(entries.filter(isWrite), context, []);
  const others = await settleAll(
    entries.filter((entry) => !isWrite(entry)),
    context,
    writable,
  );
  return { ...common, cwd: seenCwd, devices: "minimal", roots: [...writable, ...others] };
}

interface PlaceContext {
  workspaceRoots: readonly string[];
  tmpdirs: readonly string[];
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
    pathsOf(entry.place, context).map((path) => settle(path, entry, writable)),
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
      return subpath === null
        ? context.workspaceRoots
        : context.workspaceRoots.map((root) => join(root, subpath));
    }
    case "path":
      return [place.path];
  }
}

async function settle(
  path: string,
  entry: IntentEntry,
  writable: readonly SandboxRoot[],
): Promise<SandboxRoot | null> {
  // Programs look for these by name, so links among them are not followed away.
  if (entry.place.type === "minimal") return { path, access: entry.access };
  const real = await realpath(path).catch(nullIfMissing);
  // Restricting a place inside a writable one only holds when a mount can stand on exactly that name.
  if (entry.access !== "write" && (await isReplaceable(path, real, writable))) {
    if (real === null && entry.missing === "skip") return null;
    throw cannotEnforce();
  }
  // Not there and not creatable: nothing can be read from it or written to it.
  if (real === null) return null;
  const kind = (await stat(real)).isDirectory() ? "directory" : "file";
  return { path: real, access: entry.access, kind };
}

/** Could somebody inside put something else at this name: is it missing, or a link, in a writable directory? */
async function isReplaceable(
  path: string,
  real: string | null,
  writable: readonly SandboxRoot[],
): Promise<boolean> {
  const parent = await nearestExisting(dirname(path));
  const isWritable = writable.some((root) => root.path === parent || isInside(parent, root.path));
  if (!isWritable) return false;
  if (real === null) return true;
  return (await lstat(join(parent, basename(path)))).isSymbolicLink();
}

async function nearestExisting(path: string): Promise<string> {
  const real = await realpath(path).catch(nullIfMissing);
  return real ?? (path === "/" ? "/" : nearestExisting(dirname(path)));
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

/** The walls' own programs stand first, so the name a program sees as its own is given to it inside. */
function withArg0({ argv, arg0 }: Start): string[] {
  return arg0 === undefined || arg0 === null ? argv : ["bash", "-c", 'exec -a "$0" "$@"', arg0, ...argv];
}

function outputTail(log: EventLog): Uint8Array {
  const streams = (["stdout", "stderr", "pty"] as const).map((stream) => {
    const buffer = log.headTail(stream);
    return buffer.bytes().subarray(-DENIAL_TAIL_BYTES / 2);
  });
  return Buffer.concat(streams);
}
