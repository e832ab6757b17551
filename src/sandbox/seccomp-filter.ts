/**
 * The system call filter behind every wall, as the classic BPF program the kernel takes. Assembled here, from one table per
 * architecture: bubblewrap loads it right before the command, and what it refuses stays refused for all descendants.
 *
 * A filter sees numbers and plain arguments, never memory: it cannot tell where a `connect` goes. So with the network off
 * the socket itself is refused, unless it is of a family that the network namespace holds.
 */

/** A program of instructions, eight bytes each, in the byte order of the machine. */
export function seccompFilter(options: { network: boolean; arch: FilterArch }): Uint8Array {
  const { network, arch } = options;
  const table = TABLES[arch];
  const program = [
    load(ARCH_OFFSET),
    jump(JEQ, table.audit, 1, 0),
    answer(KILL_PROCESS),
    load(NUMBER_OFFSET),
    // Another calling convention under the same architecture, with numbers of its own.
    ...(table.foreignBit === null ? [] : [jump(JGE, table.foreignBit, 0, 1), answer(refuse(EPERM))]),
    ...DENIED.flatMap((name) => refuseEqual(table.calls[name], EPERM)),
    // Its flags are in memory. The C libraries then use `clone`, whose flags are not.
    ...refuseEqual(table.calls.clone3, ENOSYS),
    ...whenCall(table.calls.clone, refuseBits(0, CLONE_NEWUSER)),
    ...whenCall(table.calls.unshare, refuseBits(0, CLONE_NEWUSER)),
    // The kernel takes a request of 32 bits: the upper half of the argument means nothing.
    ...whenCall(table.calls.ioctl, [
      loadArgument(1),
      ...TERMINAL_INJECTIONS.flatMap((request) => refuseEqual(request, EPERM)),
    ]),
    ...(network ? [] : whenCall(table.calls.socket, allowOnly(0, NAMESPACED_FAMILIES))),
    answer(ALLOW),
  ];
  return encode(program);
}

/** The architecture of this machine as the filter knows it; null where there is no table for it. */
export function filterArch(arch: string = process.arch): FilterArch | null {
  return arch === "x64" || arch === "arm64" ? arch : null;
}

export type FilterArch = "x64" | "arm64";

/**
 * Refused whole: reaching into other processes, requests that no filter sees, other namespaces, the user's keys, and
 * corners of the kernel that a command has no use for.
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

type CallName = (typeof DENIED)[number] | "clone" | "clone3" | "unshare" | "ioctl" | "socket";

interface ArchTable {
  /** AUDIT_ARCH_*: what the kernel says a call was made for. */
  audit: number;
  /** Call numbers from here on are another convention's. */
  foreignBit: number | null;
  calls: Record<CallName, number>;
}

const TABLES: Record<FilterArch, ArchTable> = {
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
    },
  },
};

const CLONE_NEWUSER = 0x10000000;
/** TIOCSTI types into the terminal; TIOCLINUX pastes into a console. */
const TERMINAL_INJECTIONS = [0x5412, 0x541c];
/** AF_INET, AF_INET6, AF_NETLINK: all that the walls' own, empty network namespace holds. */
const NAMESPACED_FAMILIES = [2, 10, 16];

const EPERM = 1;
const ENOSYS = 38;

// ---- instructions: code, jump if true, jump if false, value

type Instruction = readonly [code: number, jumpTrue: number, jumpFalse: number, value: number];

/** Where the kernel lays out a call: `struct seccomp_data`. */
const NUMBER_OFFSET = 0;
const ARCH_OFFSET = 4;
const ARGUMENTS_OFFSET = 16;
const ARGUMENT_BYTES = 8;

const LOAD_WORD = 0x20;
const RETURN = 0x06;
const JEQ = 0x15;
const JGE = 0x35;
const JSET = 0x45;

const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const refuse = (errno: number) => 0x00050000 | errno;

const load = (offset: number): Instruction => [LOAD_WORD, 0, 0, offset];
/** The low half of an argument: both machines are little-endian. */
const loadArgument = (index: number) => load(ARGUMENTS_OFFSET + index * ARGUMENT_BYTES);
const answer = (value: number): Instruction => [RETURN, 0, 0, value];
const jump = (code: number, value: number, ifTrue: number, ifFalse: number): Instruction => [
  code,
  ifTrue,
  ifFalse,
  value,
];

/** Runs `body` for one call only. Whatever the body loads, the number is there again behind it. */
function whenCall(number: number, body: readonly Instruction[]): Instruction[] {
  return [jump(JEQ, number, 0, body.length + 1), ...body, load(NUMBER_OFFSET)];
}

function refuseBits(argument: number, bits: number): Instruction[] {
  return [loadArgument(argument), jump(JSET, bits, 0, 1), answer(refuse(EPERM))];
}

function refuseEqual(value: number, errno: number): Instruction[] {
  return [jump(JEQ, value, 0, 1), answer(refuse(errno))];
}

function allowOnly(argument: number, values: readonly number[]): Instruction[] {
  const checks = values.map((value, index) => jump(JEQ, value, values.length - index, 0));
  return [loadArgument(argument), ...checks, answer(refuse(EPERM))];
}

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
