/** The platforms that have a package with the addon and the programs in it. */
export interface Platform {
  /** Name of the package below `@procwire/`. */
  name: string;
  cpu: "x64" | "arm64";
  libc: "glibc" | "musl";
  /** Target name of zig. The number is the oldest glibc that the addon supports. */
  target: string;
  /** Target of the static programs. */
  programTarget: string;
  /** How the platform is tested, for users who install it. */
  ran: string;
}

export const OLDEST_GLIBC = "2.28";

export const PLATFORMS: readonly Platform[] = [
  {
    name: "linux-x64",
    cpu: "x64",
    libc: "glibc",
    target: `x86_64-linux-gnu.${OLDEST_GLIBC}`,
    programTarget: "x86_64-linux-musl",
    ran: "run by tests",
  },
  {
    name: "linux-arm64",
    cpu: "arm64",
    libc: "glibc",
    target: `aarch64-linux-gnu.${OLDEST_GLIBC}`,
    programTarget: "aarch64-linux-musl",
    ran: "run by tests under qemu, never on a real machine",
  },
  {
    name: "linux-x64-musl",
    cpu: "x64",
    libc: "musl",
    target: "x86_64-linux-musl",
    programTarget: "x86_64-linux-musl",
    ran: "built and its symbols checked, never run",
  },
  {
    name: "linux-arm64-musl",
    cpu: "arm64",
    libc: "musl",
    target: "aarch64-linux-musl",
    programTarget: "aarch64-linux-musl",
    ran: "built and its symbols checked, never run",
  },
];
