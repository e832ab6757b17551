/** Recognizes a denial in the output of a process, because programs report it only as text. No other module reads that text. */

/** The filter kills with SIGSYS; bubblewrap reports a signal as exit code 128 + its number. */
const SIGSYS_EXIT_CODE = 128 + 31;

/** System error texts of a denied operation, which programs in all languages print. */
const REFUSALS = ["operation not permitted", "permission denied", "read-only file system"];

/** Error texts without a network, or with only the sandbox's own loopback, on which nothing listens. */
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

/** The searched length of the output's tail: a program prints its error last. */
export const DENIAL_TAIL_BYTES = 64 * 1024;

/**
 * Guesses whether the sandbox denied an operation and the process failed because of that. A process that exits with 0 was
 * not denied. A process that fails and prints a denial was.
 */
export function isSandboxDenial(
  exit: { exitCode: number | null; signal: string | null },
  outputTail: Uint8Array,
  sandbox: { network: boolean } = { network: true },
): boolean {
  if (exit.exitCode === 0 || exit.exitCode === null) return false;
  if (exit.signal === "SIGSYS" || exit.exitCode === SIGSYS_EXIT_CODE) return true;
  const text = new TextDecoder().decode(outputTail.subarray(-DENIAL_TAIL_BYTES)).toLowerCase();
  const refusals = sandbox.network ? REFUSALS : [...REFUSALS, ...NO_NETWORK];
  return refusals.some((refusal) => text.includes(refusal));
}
