/**
 * The system call filter of every sandbox, as a classic BPF program. It is assembled from one table per architecture.
 * Bubblewrap installs it right before the command, and all descendants inherit it.
 *
 * A filter sees numbers and plain arguments but no memory, so it cannot know the target of a `connect`. Without network
 * access it therefore denies creating sockets, except for families that the network namespace isolates. A pair of Unix
 * sockets is allowed only if its ends stay connected to each other.
 */

export interface SeccompFilterOptions {
  network: boolean;
  /** Without network access: allows TCP and UDP only, because the process has a managed network. Default: false. */
  isManaged?: boolean;
  arch: SeccompArch;
}

/** Returns the encoded filter: eight bytes per instruction, in the host's byte order. */
export function seccompFilter({ network, isManaged = false, arch }: SeccompFilterOptions): Uint8Array {
  const table = TABLES[arch];
  const program = [
    load(ARCH_OFFSET),
    jump(JEQ, table.audit, 1, 0),
    result(KILL_PROCESS),
    load(NUMBER_OFFSET),
    // Another calling convention (x32) of the same architecture has its own call numbers.
    ...(table.foreignBit === null ? [] : [jump(JGE, table.foreignBit, 0, 1), result(refuse(EPERM))]),
    ...DENIED.flatMap((name) => refuseEqual(table.calls[name], EPERM)),
    // The flags of `clone3` are in memory. C libraries fall back to `clone`, whose flags are an argument.
    ...refuseEqual(table.calls.clone3, ENOSYS),
    ...whenCall(table.calls.clone, refuseBits(0, CLONE_NEWUSER)),
    ...whenCall(table.calls.unshare, refuseBits(0, CLONE_NEWUSER)),
    // The kernel uses 32 bits of the request and ignores the upper half of the argument.
    ...whenCall(table.calls.ioctl, [
      loadArgument(1),
      ...TERMINAL_INJECTIONS.flatMap((request) => refuseEqual(request, EPERM)),
    ]),
    ...(network ? [] : whenCall(table.calls.socket, isManaged ? INTERNET_ONLY : NAMESPACED_ONLY)),
    ...(network
      ? []
      : whenCall(table.calls.socketpair, [
          ...allowOnly([loadArgument(0)], [AF_UNIX]),
          ...allowOnly([loadArgument(1), andWith(~SOCKET_FLAGS)], CONNECTED_TYPES),
        ])),
    result(ALLOW),
  ];
  return encode(program);
}

/** Returns the architecture of this host; null if there is no table for it. */
export function seccompArchFor(arch: string = process.arch): SeccompArch | null {
  return arch === "x64" || arch === "arm64" ? arch : null;
}

export type SeccompArch = "x64" | "arm64";

/**
 * Denied for all arguments: access to other processes, operations that bypass filters, other namespaces, the user's keys, and
 * kernel features that commands do not need.
 */
const DENIED = [
  "ptrace",
  "process_vm_readv",
  "process_vm_writev",
  "pidfd_getfd",
  "io_uring_setup",
  "io_uring_enter",
  "io_uring_register",
  "setns",
  "add_key",
  "request_key",
  "keyctl",
  "bpf",
  "perf_event_open",
  "userfaultfd",
] as const;

type CallName = (typeof DENIED)[number] | "clone" | "clone3" | "unshare" | "ioctl" | "socket" | "socketpair";

interface ArchTable {
  /** AUDIT_ARCH_*: the architecture that the kernel reports for a call. */
  audit: number;
  /** Call numbers from here on belong to another calling convention. */
  foreignBit: number | null;
  calls: Record<CallName, number>;
}

const TABLES: Record<SeccompArch, ArchTable> = {
  x64: {
    audit: 0xc000003e,
    foreignBit: 0x40000000,
    calls: {
      ptrace: 101,
      process_vm_readv: 310,
      process_vm_writev: 311,
      pidfd_getfd: 438,
      io_uring_setup: 425,
      io_uring_enter: 426,
      io_uring_register: 427,
      setns: 308,
      add_key: 248,
      request_key: 249,
      keyctl: 250,
      bpf: 321,
      perf_event_open: 298,
      userfaultfd: 323,
      clone: 56,
      clone3: 435,
      unshare: 272,
      ioctl: 16,
      socket: 41,
      socketpair: 53,
    },
  },
  arm64: {
    audit: 0xc00000b7,
    foreignBit: null,
    calls: {
      ptrace: 117,
      process_vm_readv: 270,
      process_vm_writev: 271,
      pidfd_getfd: 438,
      io_uring_setup: 425,
      io_uring_enter: 426,
      io_uring_register: 427,
      setns: 268,
      add_key: 217,
      request_key: 218,
      keyctl: 219,
      bpf: 280,
      perf_event_open: 241,
      userfaultfd: 282,
      clone: 220,
      clone3: 435,
      unshare: 97,
      ioctl: 29,
      socket: 198,
      socketpair: 199,
    },
  },
};

const CLONE_NEWUSER = 0x10000000;
/** TIOCSTI inserts input into a terminal; TIOCLINUX pastes into a console. */
const TERMINAL_INJECTIONS = [0x5412, 0x541c];
/** AF_INET, AF_INET6, AF_NETLINK: the families that the sandbox's empty network namespace isolates. */
const NAMESPACED_FAMILIES = [2, 10, 16];
/** AF_INET, AF_INET6. */
const INTERNET_FAMILIES = [2, 10];
/** SOCK_STREAM, SOCK_DGRAM. */
const INTERNET_TYPES = [1, 2];
const AF_UNIX = 1;
/**
 * SOCK_STREAM, SOCK_SEQPACKET. An end of such a pair stays connected to its peer: `connect` and `listen` fail, and `sendto`
 * ignores or rejects an address. An end of type SOCK_DGRAM, or SOCK_RAW, which the kernel treats as SOCK_DGRAM, can connect
 * and send to any reachable socket of the host by path or abstract name.
 */
const CONNECTED_TYPES = [1, 5];
/** SOCK_NONBLOCK and SOCK_CLOEXEC, which are part of the type argument. */
const SOCKET_FLAGS = 0x800 | 0x80000;

const EPERM = 1;
const ENOSYS = 38;

// ---- instructions: code, jump if true, jump if false, value

type Instruction = readonly [code: number, jumpTrue: number, jumpFalse: number, value: number];

/** Offsets in the kernel's `struct seccomp_data`. */
const NUMBER_OFFSET = 0;
const ARCH_OFFSET = 4;
const ARGUMENTS_OFFSET = 16;
const ARGUMENT_BYTES = 8;

const LOAD_WORD = 0x20;
const AND = 0x54;
const RETURN = 0x06;
const JEQ = 0x15;
const JGE = 0x35;
const JSET = 0x45;

const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const refuse = (errno: number) => 0x00050000 | errno;

const load = (offset: number): Instruction => [LOAD_WORD, 0, 0, offset];
/** The low half of an argument: both architectures are little-endian. */
const loadArgument = (index: number) => load(ARGUMENTS_OFFSET + index * ARGUMENT_BYTES);
const andWith = (bits: number): Instruction => [AND, 0, 0, bits >>> 0];
const result = (value: number): Instruction => [RETURN, 0, 0, value];
const jump = (code: number, value: number, ifTrue: number, ifFalse: number): Instruction => [
  code,
  ifTrue,
  ifFalse,
  value,
];

/** Runs `body` for one system call only and reloads the call number afterwards. */
function whenCall(number: number, body: readonly Instruction[]): Instruction[] {
  return [jump(JEQ, number, 0, body.length + 1), ...body, load(NUMBER_OFFSET)];
}

function refuseBits(argument: number, bits: number): Instruction[] {
  return [loadArgument(argument), jump(JSET, bits, 0, 1), result(refuse(EPERM))];
}

function refuseEqual(value: number, errno: number): Instruction[] {
  return [jump(JEQ, value, 0, 1), result(refuse(errno))];
}

/** Denies every value except these; for these the program continues. */
function allowOnly(loading: readonly Instruction[], values: readonly number[]): Instruction[] {
  const checks = values.map((value, index) => jump(JEQ, value, values.length - index, 0));
  return [...loading, ...checks, result(refuse(EPERM))];
}

const NAMESPACED_ONLY = allowOnly([loadArgument(0)], NAMESPACED_FAMILIES);
/** Without netlink and raw sockets: the process needs only its proxy. */
const INTERNET_ONLY = [
  ...allowOnly([loadArgument(0)], INTERNET_FAMILIES),
  ...allowOnly([loadArgument(1), andWith(~SOCKET_FLAGS)], INTERNET_TYPES),
];

function encode(program: readonly Instruction[]): Uint8Array {
  const bytes = new Uint8Array(program.length * 8);
  const view = new DataView(bytes.buffer);
  for (const [index, [code, jumpTrue, jumpFalse, value]] of program.entries()) {
    const at = index * 8;
    view.setUint16(at, code, true);
    view.setUint8(at + 2, jumpTrue);
    view.setUint8(at + 3, jumpFalse);
    view.setUint32(at + 4, value, true);
  }
  return bytes;
}
