import { dirname } from "node:path";
import type { SeccompArch } from "./seccomp-filter.ts";

/** `deny` hides the path. */
export type Access = "read" | "write" | "deny";

export interface SandboxRoot {
  /** Absolute and without symbolic links, because a mount cannot cover a link. */
  path: string;
  access: Access;
  /** The kind of a denied path, which decides how it is covered. Defaults to a directory. */
  kind?: "directory" | "file";
  /** Binds the root by a descriptor that is opened beforehand, so that a later rename cannot replace it. */
  opened?: boolean;
}

export interface SandboxPolicy {
  /** The nearest root above a path applies. At the same path, deny overrides write and write overrides read. */
  roots: readonly SandboxRoot[];
  cwd: string;
  network: boolean;
  /**
   * `private`: an empty /tmp that is removed with the process. `shared`: /tmp as the roots define it. An object: a host
   * directory that is mounted at /tmp; no root may then be inside /tmp.
   */
  tmp: "private" | "shared" | { directory: string };
  /** `minimal`: null, zero, random, tty and similar devices. `all`: all devices of the host. */
  devices: "minimal" | "all";
}

/** Absolute paths of the required executables and their features. */
export interface SandboxPrograms {
  env: string;
  bwrap: string;
  /** Selects the system call table of the filter. */
  arch: SeccompArch;
  /** False for old versions, which bind by path: a root may be replaced between the check and the mount. */
  bindsDescriptors: boolean;
  /** A setuid bubblewrap cannot run in a Landlock domain, which forbids new privileges. */
  isSetuid: boolean;
  /** A shell that can compare two files. If null, the sandbox enters the working directory by name without a check. */
  sh: string | null;
}

/**
 * Returns bubblewrap's options for a policy. Missing paths are omitted: they can be neither read nor written. `open`
 * returns the child's descriptor of an opened root, or null if the root must be bound by path.
 */
export function bubblewrapArguments(policy: SandboxPolicy, open: (path: string) => number | null): string[] {
  return [
    ...["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"],
    // Otherwise root would keep its capabilities and could unmount the sandbox.
    ...["--cap-drop", "ALL"],
    ...(policy.network ? [] : ["--unshare-net"]),
    ...mounts(policy, open),
    ...["--chdir", policy.cwd],
  ];
}

/** Root owns the kernel settings even without capabilities, so only process entries of /proc stay writable. */
const READ_ONLY_IN_PROC = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr"];

/** `source` is mounted instead of an empty file system. */
type Mount = SandboxRoot | { path: string; access: "tmpfs"; source?: string };

function mounts(policy: SandboxPolicy, open: (path: string) => number | null): string[] {
  const requested = byDepth(policy);
  const writableParents = writableParentsOf(requested);
  const [base, ...above] = [
    ...requested.filter(({ path }) => !writableParents.has(path)),
    ...writableParents.values(),
  ].sort(byPath);
  const args: string[] = [];
  // Made read-only last, because the mount points below must be created first.
  const sealed: string[] = [];
  if (base?.access === "write") args.push("--bind", "/", "/");
  else if (base?.access === "read") args.push("--ro-bind", "/", "/");
  else {
    args.push("--tmpfs", "/");
    sealed.push("/");
  }
  args.push(...(policy.devices === "all" ? ["--dev-bind", "/dev", "/dev"] : ["--dev", "/dev"]));
  args.push("--proc", "/proc");
  for (const name of READ_ONLY_IN_PROC) args.push("--ro-bind-try", `/proc/${name}`, `/proc/${name}`);
  for (const [index, mount] of above.entries()) {
    const enclosingAccess = nearestAbove(mount, [base, ...above.slice(0, index)])?.access;
    if (
      (enclosingAccess === mount.access && !writableParents.has(mount.path)) ||
      (enclosingAccess === "tmpfs" && mount.access === "deny")
    )
      continue;
    switch (mount.access) {
      case "tmpfs":
        if (mount.source === undefined) args.push("--tmpfs", mount.path);
        else args.push(...bindAt(mount.path, mount.source, open));
        break;
      case "read":
      case "write":
        args.push(...bind(mount, open));
        break;
      case "deny":
        if (mount.kind === "file") {
          // The mount allows no devices, so opening the path fails.
          args.push("--ro-bind", "/dev/null", mount.path);
          break;
        }
        args.push("--perms", above.some((other) => isStrictlyBelow(other.path, mount.path)) ? "0111" : "0000");
        args.push("--tmpfs", mount.path);
        sealed.push(mount.path);
        break;
    }
  }
  return [...args, ...sealed.flatMap((path) => ["--remount-ro", path])];
}

/**
 * Returns the writable directories above protected paths, by path. A mount point cannot be renamed, but a directory
 * above it can: a command could move it away and create an unprotected copy. So each of them becomes a mount point.
 */
function writableParentsOf(mounts: readonly Mount[]): Map<string, SandboxRoot> {
  const writableParents = new Map<string, SandboxRoot>();
  const covers: readonly Mount[] = [...mounts, ...OWN_MOUNTS].sort(byPath);
  for (const mount of mounts) {
    if (mount.access !== "read" && mount.access !== "deny") continue;
    for (let path = dirname(mount.path); path !== "/"; path = dirname(path)) {
      const cover = covers.findLast((other) => isWithin(path, other.path));
      if (cover?.access !== "write") continue;
      const opened = mount.opened || mount.access === "deny" || writableParents.get(path)?.opened;
      writableParents.set(path, cover.path === path ? cover : { path, access: "write", opened: opened === true });
    }
  }
  return writableParents;
}

/** Mounts that bubblewrap creates for every policy. */
const OWN_MOUNTS: readonly Mount[] = ["/dev", "/proc"].map((path) => ({ path, access: "tmpfs" }));

function bind({ path, access, opened }: SandboxRoot, open: (path: string) => number | null): string[] {
  const option = access === "write" ? "--bind" : "--ro-bind";
  const fd = opened ? open(path) : null;
  return fd === null ? [`${option}-try`, path, path] : [`${option}-fd`, `${fd}`, path];
}

function bindAt(path: string, source: string, open: (path: string) => number | null): string[] {
  const fd = open(source);
  return fd === null ? ["--bind", source, path] : ["--bind-fd", `${fd}`, path];
}

/** Returns one mount per path, parents before children, starting with the root, which is denied by default. */
function byDepth(policy: SandboxPolicy): Mount[] {
  const strongest = new Map<string, Mount>([["/", { path: "/", access: "deny" }]]);
  for (const root of [...policy.roots].sort((a, b) => PRECEDENCE[a.access] - PRECEDENCE[b.access])) {
    const path = withoutTrailingSlash(root.path);
    strongest.set(path, { ...root, path });
  }
  if (policy.tmp === "private") strongest.set("/tmp", { path: "/tmp", access: "tmpfs" });
  else if (policy.tmp !== "shared")
    strongest.set("/tmp", { path: "/tmp", access: "tmpfs", source: policy.tmp.directory });
  return [...strongest.values()].sort(byPath);
}

function byPath(a: Mount, b: Mount): number {
  return depth(a.path) - depth(b.path) || (a.path < b.path ? -1 : 1);
}

const PRECEDENCE: Record<Access, number> = { read: 0, write: 1, deny: 2 };

function nearestAbove(mount: Mount, candidates: readonly (Mount | undefined)[]): Mount | undefined {
  let nearest: Mount | undefined;
  for (const other of candidates) {
    if (other && isStrictlyBelow(mount.path, other.path)) nearest = other;
  }
  return nearest;
}

/** Reports whether a path is the directory or below it. */
export function isWithin(path: string, directory: string): boolean {
  return path === directory || isStrictlyBelow(path, directory);
}

/** False if both paths are equal. */
export function isStrictlyBelow(path: string, directory: string): boolean {
  return path !== directory && path.startsWith(directory === "/" ? "/" : `${directory}/`);
}

function depth(path: string): number {
  return path === "/" ? 0 : path.split("/").length;
}

function withoutTrailingSlash(path: string): string {
  return path.length > 1 ? path.replace(/\/+$/, "") || "/" : path;
}
