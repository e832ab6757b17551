import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { skipUnless } from "./skip-unless.ts";

export const QEMU = "/usr/bin/qemu-aarch64-static";
/** Directory in which qemu finds the C library of an arm64 program. */
export const ARM64_LIBRARIES = "/usr/aarch64-linux-gnu";

export const SKIP_WITHOUT_QEMU = skipUnless(
  existsSync(QEMU) && existsSync(`${ARM64_LIBRARIES}/lib/libstdc++.so.6`),
  "ARM64 IS NOT TESTED: qemu or its libraries are missing; `npm run setup:debian` brings them",
);

/** First bytes of an arm64 program, and the mask of the significant bits, for the kernel's binfmt_misc. */
const ARM64_ELF = String.raw`\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00`;
const COUNTS = String.raw`\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`;

/**
 * An emulated arm64 host: the kernel runs each arm64 program in qemu, and `uname` reports arm64. A separate namespace
 * limits this to the programs of the test.
 */
export function makeArm64Host(directory: string): { programs: string; under: string } {
  const programs = join(directory, "arm64-programs");
  mkdirSync(programs);
  writeFileSync(join(programs, "uname"), "#!/bin/sh\necho Linux aarch64\n", { mode: 0o755 });
  const under = join(directory, "arm64-host");
  const script = `#!/bin/sh
[ "$1" = inside ] || exec unshare --user --map-root-user --mount "$0" inside
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 126
printf %s '${`:arm64:M::${ARM64_ELF}:${COUNTS}:${QEMU}:F`}' > /proc/sys/fs/binfmt_misc/register || exit 126
export QEMU_LD_PREFIX=${ARM64_LIBRARIES}
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
`;
  writeFileSync(under, script, { mode: 0o755 });
  return { programs, under };
}
