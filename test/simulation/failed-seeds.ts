/** Seeds that once violated an invariant, each with the cause. Every `npm test` runs them. */
export const FAILED_SEEDS: readonly { seed: number; was: string }[] = [
  { seed: 2069, was: "the server dropped an exit 30 s after it sent the exit over a dead connection" },
  {
    seed: 1142,
    was: "the server dropped an exit 30 s after it sent the exit over a dead connection, with a second client",
  },
  { seed: 9, was: "the server reset a timer repeatedly for every closed process" },
  { seed: 12, was: "the event log did not count the bytes of a gap after it evicted the gap" },
  { seed: 619, was: "a gap counted bytes that arrived while the read was in flight" },
  { seed: 23, was: "a resent closeStdin returned stdinClosed" },
  { seed: 82, was: "a resent terminate reported that the process had exited before it" },
  { seed: 244, was: "a resent start started an exited process a second time" },
  { seed: 79, was: "the server rejected a wait for a process that had exited long before" },
  { seed: 1117, was: "a read that the server responded to was ahead of the next read" },
  { seed: 2295, was: "a read of an event log with a gap omitted a retained chunk" },
  { seed: 1489, was: "a process whose start completed while its session was detached lost output" },
  { seed: 1230, was: "a process whose start completed while its session was detached lost a large output" },
  {
    seed: 285,
    was: "output that arrived with the response to the start was evicted before a reader could request it",
  },
  {
    seed: 901129,
    was: "an `initialize` that its client had abandoned arrived after a later one and took the session over for good",
  },
];
