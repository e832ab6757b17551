import type { FilterArch } from "./seccomp-filter.ts";

/** `deny` hides what is there. */
export type Access = "read" | "write" | "deny";

export interface SandboxRoot {
  /** Absolute, and free of symbolic links: a wall cannot be put on a link. */
  path: string;
  access: Access;
  /** What a denied path is; bubblewrap covers the two differently. Default: a directory. */
  kind?: "directory" | "file";
  /** It is opened before the walls are raised and bound as what was opened, so no rename in between changes what it is. */
  opened?: boolean;
}

export interface SandboxPolicy {
  /** The nearest root above a path decides; of two roots at one path, deny beats write and write beats read. */
  roots: readonly SandboxRoot[];
  cwd: string;
  network: boolean;
  /**
   * `private`: an empty /tmp of its own that goes with the process. `shared`: what the roots say about it. A directory of
   * the host stands there instead; no root may then be inside /tmp.
   */
  tmp: "private" | "shared" | { directory: string };
  /** `minimal`: null, zero, random, tty and the like. `all`: whatever the host has. */
  devices: "minimal" | "all";
}

/** The programs by their full path, and what they can do. */
export interface SandboxPrograms {
  env: string;
  bwrap: string;
  /** Whose system calls the filter knows. */
  arch: FilterArch;
  /** Older ones bind by path only: between looking at a root and binding it there is then a moment. */
  bindsDescriptors: boolean;
  /** A shell that can compare two files; null: the directory inside is entered by its name alone. */
  sh: string | null;
}

/**
 * Bubblewrap's options for a policy. A path that is not there is left out: nothing can then be read from it, nor written to
 * it. `open` gives the child's number of an opened root, or null where it has to be bound by its path.
 */
export function bubblewrapOptions(policy: SandboxPolicy, open: (path: string) => number | null): string[] {
  return [
    ...["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"],
    // Root would keep its capabilities, and with them take the walls down again.
    ...["--cap-drop", "ALL"],
    ...(policy.network ? [] : ["--unshare-net"]),
    ...mounts(policy, open),
    ...["--chdir", policy.cwd],
  ];
}

/** Root without capabilities still owns the kernel's settings; so nothing but processes can be written in /proc. */
const READ_ONLY_IN_PROC = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr"];

/** A `source` stands there instead of an empty file system. */
type Mount = SandboxRoot | { path: string; access: "tmpfs"; source?: string };

function mounts(policy: SandboxPolicy, open: (path: string) => number | null): string[] {
  const [base, ...above] = byDepth(policy);
  const args: string[] = [];
  // Made read-only last: until then the places of the mounts inside have to be created.
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
    const around = nearestAbove(mount, [base, ...above.slice(0, index)])?.access;
    if (around === mount.access || (around === "tmpfs" && mount.access === "deny")) continue;
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
          // A device on a mount without devices cannot be opened by anyone.
          args.push("--ro-bind", "/dev/null", mount.path);
          break;
        }
        args.push("--perms", above.some((other) => isInside(other.path, mount.path)) ? "0111" : "0000");
        args.push("--tmpfs", mount.path);
        sealed.push(mount.path);
        break;
    }
  }
  return [...args, ...sealed.flatMap((path) => ["--remount-ro", path])];
}

function bind({ path, access, opened }: SandboxRoot, open: (path: string) => number | null): string[] {
  const option = access === "write" ? "--bind" : "--ro-bind";
  const fd = opened ? open(path) : null;
  return fd === null ? [`${option}-try`, path, path] : [`${option}-fd`, `${fd}`, path];
}

function bindAt(path: string, source: string, open: (path: string) => number | null): string[] {
  const fd = open(source);
  return fd === null ? ["--bind", source, path] : ["--bind-fd", `${fd}`, path];
}

/** One mount a path, the root first (hidden unless told otherwise), each before what lies inside it. */
function byDepth(policy: SandboxPolicy): Mount[] {
  const strongest = new Map<string, Mount>([["/", { path: "/", access: "deny" }]]);
  for (const root of [...policy.roots].sort((a, b) => PRECEDENCE[a.access] - PRECEDENCE[b.access])) {
    const path = withoutTrailingSlash(root.path);
    strongest.set(path, { ...root, path });
  }
  if (policy.tmp === "private") strongest.set("/tmp", { path: "/tmp", access: "tmpfs" });
  else if (policy.tmp !== "shared")
    strongest.set("/tmp", { path: "/tmp", access: "tmpfs", source: policy.tmp.directory });
  return [...strongest.values()].sort((a, b) => depth(a.path) - depth(b.path) || (a.path < b.path ? -1 : 1));
}

const PRECEDENCE: Record<Access, number> = { read: 0, write: 1, deny: 2 };

function nearestAbove(mount: Mount, candidates: readonly (Mount | undefined)[]): Mount | undefined {
  let nearest: Mount | undefined;
  for (const other of candidates) {
    if (other && isInside(mount.path, other.path)) nearest = other;
  }
  return nearest;
}

/** Strictly below, not equal. */
export function isInside(path: string, directory: string): boolean {
  return path !== directory && path.startsWith(directory === "/" ? "/" : `${directory}/`);
}

function depth(path: string): number {
  return path === "/" ? 0 : path.split("/").length;
}

function withoutTrailingSlash(path: string): string {
  return path.length > 1 ? path.replace(/\/+$/, "") || "/" : path;
}
