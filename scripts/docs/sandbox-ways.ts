/** Ways out of a sandbox that the sandbox matrix tries. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Places of one attempt. */
export interface Place {
  /** Writable for the command. Contains `.git` and `own`. */
  workspace: string;
  /** Owned by the same user, not writable for the command. */
  outside: string;
  /** Directory in the workspace in which the sandboxing program keeps its own files; null if it has none. */
  own: string | null;
  /** Credential file of the sandboxing program, which contains `matrix-secret`; null if it has none. */
  credential: string | null;
  /** An unsandboxed process of the same user. */
  hostPid: number;
  /** TCP ports of the host: a service on 127.0.0.1 and ::1, a port that forwards to a service of a client, a network proxy. */
  port: number;
  port6: number;
  forwardedPort: number;
  proxyPort: number;
  /** TCP port of a procwire server, and its token. */
  serverPort: number;
  token: string;
  /** UDP port of the host on 127.0.0.1. */
  udpPort: number;
  receivedDatagrams: () => number;
  socket: string;
  /** Unix socket in the directory of the user's services below /run. */
  serviceSocket: string;
  abstractName: string;
  datagram: string;
  /** Key of a System V shared memory segment of the host. */
  sharedMemoryKey: number;
  /** Name of a file with the text `matrix-secret` in /tmp and in /dev/shm of the host. */
  temporaryName: string;
  /** Path of the program of `test/escape/attempt.c`. */
  program: string;
}

export interface WayOut {
  name: string;
  /** Files of `test/escape` with attempts of this family, without `.test.ts`. */
  tests: readonly [string, ...string[]];
  /** A shell script that prints `escaped` if it succeeds; null if the sandbox has no such part. */
  script: (place: Place) => string | null;
  /** Reports whether the host shows the success of the script. */
  isEscaped?: (place: Place) => boolean | Promise<boolean>;
  /** Network access grants it. */
  isNetwork?: boolean;
  /** Variable that names the workspace, of the command and of the sandboxing program. PATH: with planted programs. */
  variable?: "HOME" | "PATH";
  /** The standard streams are a terminal of the host. */
  hasTerminal?: boolean;
  /** The host replaces the credential file during the command by a file with the text `replaced`. */
  replacesCredential?: boolean;
}

/** The process that an attempt leaves behind. */
export const SLEEPER = ["sleep", "98765"];

const attempt =
  (...args: string[]) =>
  ({ program }: Place) =>
    `[ "$(${program} ${args.join(" ")})" = ok ] && echo escaped`;
const any = (...lines: string[]) => lines.join("; ");
const contains = (path: string) => `grep -q matrix-secret ${path} && echo escaped`;
const connectTo = (host: string, port: number) =>
  `timeout 5 bash -c 'exec 3<>/dev/tcp/${host}/${port}' && echo escaped`;
const readFrom = (port: number) =>
  `timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/${port}; cat <&3' | grep -q matrix-secret && echo escaped`;

const FILES: readonly WayOut[] = [
  {
    name: "write a file outside of the workspace",
    tests: ["files", "token-roots", "persistent"],
    script: ({ outside }) => `echo x >${outside}/written`,
    isEscaped: ({ outside }) => existsSync(join(outside, "written")),
  },
  {
    name: "write through a symbolic link",
    tests: ["token-roots", "output-files", "files"],
    script: ({ outside }) => `ln -s ${outside}/linked link; echo x >link`,
    isEscaped: ({ outside }) => existsSync(join(outside, "linked")),
  },
  {
    name: "write through a hard link",
    tests: ["files"],
    script: ({ outside }) => `ln ${outside}/file hard && echo changed >hard`,
    isEscaped: ({ outside }) => readFileSync(join(outside, "file"), "utf8") !== "original\n",
  },
  {
    name: "move a file out of its directory",
    tests: ["files"],
    script: ({ outside }) => `mv ${outside}/file . ; rm -f ${outside}/file; mv --exchange .git ${outside}/file`,
    isEscaped: ({ outside }) => !existsSync(join(outside, "file")),
  },
  {
    name: "write to a named pipe of the host",
    tests: ["files"],
    script: ({ outside }) => `timeout 2 sh -c 'echo x 1<>${outside}/pipe' && echo escaped`,
  },
  {
    name: "add a git hook",
    tests: ["tools"],
    script: () => "mkdir -p .git/hooks; echo x >.git/hooks/pre-commit",
    isEscaped: ({ workspace }) => existsSync(join(workspace, ".git/hooks/pre-commit")),
  },
  {
    name: "replace `.git` by renaming it",
    tests: ["tools", "files"],
    script: () => "mv .git old && mkdir .git && echo x >.git/replaced",
    isEscaped: ({ workspace }) => existsSync(join(workspace, ".git/replaced")),
  },
  {
    name: "create a missing protected directory (`.codex`)",
    tests: ["tools", "files"],
    script: () => "mkdir .codex; echo x >.codex/config.toml",
    isEscaped: ({ workspace }) => existsSync(join(workspace, ".codex/config.toml")),
  },
  {
    name: "change files of the sandboxing program in the workspace",
    tests: ["output-files", "tools"],
    script: ({ own }) => {
      const plant = `mkdir -p ${own}/jobs && echo x >${own}/jobs/planted`;
      return own && `${plant} || { mv ${own} other && ${plant}; }`;
    },
    isEscaped: ({ workspace, own }) => own !== null && existsSync(join(workspace, own, "jobs/planted")),
  },
  {
    name: "write a start-up file of the shell, with the home directory as workspace",
    tests: ["tools"],
    script: () => "echo x >>.bashrc; echo x >.profile",
    isEscaped: ({ workspace }) => [".bashrc", ".profile"].some((name) => existsSync(join(workspace, name))),
    variable: "HOME",
  },
  {
    name: "run a planted program (`bwrap`, `sh`) outside of the sandbox",
    tests: ["files", "tools"],
    script: () => "sh -c true",
    isEscaped: ({ outside }) => existsSync(join(outside, "ran")),
    variable: "PATH",
  },
  {
    name: "read a file in `/tmp` of the host",
    tests: ["persistent"],
    script: ({ temporaryName }) => contains(`/tmp/${temporaryName}`),
  },
  {
    name: "read the credential file of the sandboxing program",
    tests: ["files", "approvals"],
    script: ({ credential }) => credential && contains(credential),
  },
  {
    name: "read a credential file that is replaced during the command",
    tests: ["replaced-secrets"],
    script: ({ credential }) =>
      credential && `for i in $(seq 10); do grep -q replaced ${credential} && echo escaped; sleep 0.1; done`,
    replacesCredential: true,
  },
];

const PROCESSES: readonly WayOut[] = [
  {
    name: "read the environment of a host process",
    tests: ["private-process", "system-calls"],
    script: ({ hostPid }) => `cat /proc/${hostPid}/environ | grep -q . && echo escaped`,
  },
  {
    name: "read a secret variable of the sandboxing program",
    tests: ["private-process"],
    script: () => "cat /proc/[0-9]*/environ | grep -q matrix-variable && echo escaped",
  },
  {
    name: "signal a host process",
    tests: ["system-calls"],
    script: ({ hostPid }) => `kill -0 ${hostPid} && echo escaped`,
  },
  {
    name: "leave a process behind",
    tests: ["persistent"],
    script: () => `setsid ${SLEEPER.join(" ")} </dev/null >/dev/null 2>&1 & sleep 0.3`,
  },
  {
    name: "inherit a descriptor of the parent",
    tests: ["system-calls", "managed-network"],
    script: () => "ls -l /proc/self/fd /proc/1/fd | grep -q procwire-escape && echo escaped",
  },
  {
    name: "attach to shared memory of the host (System V, `/dev/shm`)",
    tests: ["system-calls"],
    script: ({ sharedMemoryKey, temporaryName }) =>
      any(
        `perl -e 'exit(defined(shmget(${sharedMemoryKey}, 0, 0)) ? 0 : 1)' && echo escaped`,
        contains(`/dev/shm/${temporaryName}`),
      ),
  },
  { name: "trace a process (`ptrace`)", tests: ["system-calls"], script: attempt("ptrace") },
  { name: "set up `io_uring`", tests: ["system-calls"], script: attempt("io_uring") },
  {
    name: "create a user namespace (`unshare`, `clone`, `clone3`)",
    tests: ["system-calls"],
    script: (place) => any(...["unshare", "clone", "clone3"].map((way) => attempt(way)(place))),
  },
  { name: "read kernel keys (`keyctl`)", tests: ["system-calls"], script: attempt("keyctl") },
  {
    name: "use x32 or i386 system calls",
    tests: ["system-calls"],
    script: (place) => any(attempt("x32")(place), attempt("i386")(place)),
  },
  {
    name: "inject input into the terminal of the command (`TIOCSTI`)",
    tests: ["system-calls"],
    script: (place) => any(attempt("tiocsti")(place), attempt("tiocsti", "high")(place)),
    hasTerminal: true,
  },
  {
    name: "keep a capability or gain privileges by set-user-ID",
    tests: ["system-calls"],
    script: () =>
      any(
        "grep -q '^NoNewPrivs:.*0' /proc/self/status && echo escaped",
        "grep -q '^CapEff:.*[1-9a-f]' /proc/self/status && echo escaped",
      ),
  },
  { name: "mount a file system", tests: ["system-calls"], script: () => "mount -t tmpfs none /mnt && echo escaped" },
  {
    name: "create or open a device of the host",
    tests: ["system-calls"],
    script: () =>
      any(
        "mknod device b 8 0 && echo escaped",
        "for d in mem kmsg kvm fuse sda vda nvme0n1 loop0; do (: </dev/$d) && echo escaped; done",
      ),
  },
  {
    name: "open a kernel setting or a cgroup file for writing",
    tests: ["system-calls"],
    script: () =>
      "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do [ -e $f ] && (: >>$f) && echo escaped; done",
  },
];

const NETWORK: readonly WayOut[] = [
  {
    name: "connect to a TCP port of the host",
    tests: ["managed-network"],
    script: ({ port }) => connectTo("127.0.0.1", port),
    isNetwork: true,
  },
  {
    name: "connect to a TCP port of the host over IPv6",
    tests: ["managed-network"],
    script: ({ port6 }) => connectTo("::1", port6),
    isNetwork: true,
  },
  {
    name: "send a datagram to the host, as a DNS query does",
    tests: ["managed-network"],
    script: ({ program, udpPort }) => `${program} datagram 127.0.0.1 ${udpPort}`,
    isEscaped: ({ receivedDatagrams }) => receivedDatagrams() > 0,
    isNetwork: true,
  },
  {
    name: "reach a host that no rule allows, through a proxy or with another `Host` header",
    tests: ["network-requests"],
    script: ({ port }) =>
      ["", "-H 'Host: allowed.test'", "-p", '-x "$ALL_PROXY"', "--noproxy '*'"]
        .map((flags) => `curl -s -m 5 ${flags} http://127.0.0.1:${port}/ | grep -q matrix-secret && echo escaped`)
        .join("; "),
    isNetwork: true,
  },
  {
    name: "connect to the network proxy of another process",
    tests: ["managed-network"],
    script: ({ proxyPort }) => connectTo("127.0.0.1", proxyPort),
    isNetwork: true,
  },
  {
    name: "reach a service of the client through a remote forward",
    tests: ["forwards"],
    script: ({ forwardedPort }) => readFrom(forwardedPort),
  },
  {
    name: "connect to the server, which runs commands without a sandbox",
    tests: ["approvals", "persistent", "token-roots"],
    script: ({ serverPort, token }) =>
      `timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/${serverPort}; printf "GET /readyz HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: Bearer ${token}\\r\\n\\r\\n" >&3; head -n1 <&3' | grep -q ' 200' && echo escaped`,
  },
  {
    name: "connect to a Unix socket by path",
    tests: ["sockets", "tools"],
    script: (place) => attempt("connect", place.socket)(place),
    isNetwork: true,
  },
  {
    name: "connect to a service of the user (`/run/user`: D-Bus, ssh-agent)",
    tests: ["sockets"],
    script: (place) => attempt("connect", place.serviceSocket)(place),
  },
  {
    name: "connect to an abstract Unix socket",
    tests: ["sockets"],
    script: (place) => attempt("connect", `@${place.abstractName}`)(place),
    isNetwork: true,
  },
  {
    name: "send a datagram through a socket pair",
    tests: ["sockets"],
    script: (place) => attempt("pair", "2", "sendto", place.datagram)(place),
    isNetwork: true,
  },
  {
    name: "create a socket that ignores network namespaces (vsock, AF_ALG)",
    tests: ["sockets"],
    script: (place) => any(...["40", "38"].map((family) => attempt("socket", family)(place))),
    isNetwork: true,
  },
  {
    name: "create a raw or packet socket",
    tests: ["managed-network"],
    script: (place) => any(...["2", "10", "17"].map((family) => attempt("socket", family, "3")(place))),
  },
  {
    name: "enter another network namespace",
    tests: ["managed-network"],
    script: (place) => any(attempt("setns", `/proc/${place.hostPid}/ns/net`)(place), attempt("unshare-net")(place)),
  },
];

export const WAYS: readonly WayOut[] = [...FILES, ...PROCESSES, ...NETWORK];
