/**
 * sandbox/: walls around a process. Turns a policy (what may be read and written, network or not) into a command that
 * runs another command behind bubblewrap; recognises what the walls refused; reads the sandbox intent of the wire.
 * It starts no process of its own apart from one probe, and decides nothing: who may do what is the caller's policy.
 *
 * Left open on purpose: a unix socket that can be reached by its path can be connected to, also with the network off.
 */

/** `deny` hides what is there. */
export type Access = "read" | "write" | "deny";

export interface SandboxRoot {
  /** Absolute, and free of symbolic links: a wall cannot be put on a link. */
  path: string;
  access: Access;
  /** What a denied path is; bubblewrap covers the two differently. Default: a directory. */
  kind?: "directory" | "file";
}

export interface SandboxPolicy {
  /** The nearest root above a path decides; of two roots at one path, deny beats write and write beats read. */
  roots: readonly SandboxRoot[];
  cwd: string;
  network: boolean;
  /** `private`: an empty /tmp of its own that goes with the process. `shared`: what the roots say about it. */
  tmp: "private" | "shared";
  /** `minimal`: null, zero, random, tty and the like. `all`: whatever the host has. */
  devices: "minimal" | "all";
}

/** Where the two programs are. By name they are looked up in the PATH of the process that starts. */
export interface SandboxPrograms {
  env: string;
  bwrap: string;
}

const DEFAULT_PROGRAMS: SandboxPrograms = { env: "env", bwrap: "bwrap" };

/**
 * The command that runs `argv` behind the walls of `policy`. A path that is not there is left out: nothing can then be
 * read from it, nor written to it.
 */
export function bubblewrapArgv(
  policy: SandboxPolicy,
  argv: readonly string[],
  programs: SandboxPrograms = DEFAULT_PROGRAMS,
): string[] {
  return [
    // A signal to the group would end bubblewrap itself, and with it, at once, everything inside. So it ignores what
    // people send, and the command inside gets the defaults back.
    ...[programs.env, `--ignore-signal=${FORWARDED_SIGNALS}`],
    programs.bwrap,
    ...["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"],
    // Root would keep its capabilities, and with them take the walls down again.
    ...["--cap-drop", "ALL"],
    ...(policy.network ? [] : ["--unshare-net"]),
    ...mounts(policy),
    ...["--chdir", policy.cwd, "--"],
    ...[programs.env, `--default-signal=${FORWARDED_SIGNALS}`],
    // env would take a program with an equals sign in its name for a variable.
    ...(argv[0]?.includes("=") ? ["sh", "-c", 'exec "$0" "$@"'] : []),
    ...argv,
  ];
}

/** What Ctrl-C, Ctrl-\, a graceful end, a hangup and a program's own uses of signals send to the whole group. */
const FORWARDED_SIGNALS = "INT,QUIT,TERM,HUP,USR1,USR2";

type Mount = SandboxRoot | { path: string; access: "tmpfs" };

function mounts(policy: SandboxPolicy): string[] {
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
  for (const [index, mount] of above.entries()) {
    if (nearestAbove(mount, [base, ...above.slice(0, index)])?.access === mount.access) continue;
    switch (mount.access) {
      case "tmpfs":
        args.push("--tmpfs", mount.path);
        break;
      case "read":
        args.push("--ro-bind-try", mount.path, mount.path);
        break;
      case "write":
        args.push("--bind-try", mount.path, mount.path);
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

/** One mount a path, the root first (hidden unless told otherwise), each before what lies inside it. */
function byDepth(policy: SandboxPolicy): Mount[] {
  const strongest = new Map<string, Mount>([["/", { path: "/", access: "deny" }]]);
  for (const root of [...policy.roots].sort((a, b) => PRECEDENCE[a.access] - PRECEDENCE[b.access])) {
    const path = withoutTrailingSlash(root.path);
    strongest.set(path, { ...root, path });
  }
  if (policy.tmp === "private") strongest.set("/tmp", { path: "/tmp", access: "tmpfs" });
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
