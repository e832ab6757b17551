/** SIGSYS is how a system call filter ends a process; bubblewrap passes a death by signal on as 128 + its number. */
const SIGSYS_EXIT_CODE = 128 + 31;

/** What the system says to a program that ran into a wall, whatever language prints it. */
const REFUSALS = ["operation not permitted", "permission denied", "read-only file system"];

/** What a program says that finds no network, or only the walls' own loopback, where nobody listens. */
const NO_NETWORK = [
  "connection refused",
  "couldn't connect to server",
  "econnrefused",
  "network is unreachable",
  "temporary failure in name resolution",
  "could not resolve",
  "name or service not known",
  "enetunreach",
  "eai_again",
];

/** How much of the end of the output is looked at: a program that fails says so at the end. */
export const DENIAL_TAIL_BYTES = 64 * 1024;

/**
 * Did the walls refuse something, and the process fail for it? Told from the outside only, so a guess: a process that
 * ended well was not denied, whatever it printed; one that failed and speaks of a refusal was.
 */
export function isSandboxDenial(
  exit: { exitCode: number | null; signal: string | null },
  outputTail: Uint8Array,
  walls: { network: boolean } = { network: true },
): boolean {
  if (exit.exitCode === 0 || exit.exitCode === null) return false;
  if (exit.signal === "SIGSYS" || exit.exitCode === SIGSYS_EXIT_CODE) return true;
  const text = new TextDecoder().decode(outputTail.subarray(-DENIAL_TAIL_BYTES)).toLowerCase();
  const refusals = walls.network ? REFUSALS : [...REFUSALS, ...NO_NETWORK];
  return refusals.some((refusal) => text.includes(refusal));
}
