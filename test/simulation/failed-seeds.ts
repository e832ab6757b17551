/** Seeds that once violated an invariant, each with the cause. Every `npm test` runs them. */
export const FAILED_SEEDS: readonly { seed: number; was: string }[] = [
  { seed: 2069, was: "an exit told over a dead wire was forgotten after 30 s" },
  { seed: 1142, was: "the same, beside another client" },
  { seed: 9, was: "a timer was set again and again for every process that was over" },
  { seed: 12, was: "the bytes of a hole were not counted once the hole was evicted" },
  { seed: 619, was: "a gap counted bytes that had come while the read was under way" },
  { seed: 23, was: "a closeStdin that had to be sent again was answered with stdinClosed" },
  { seed: 82, was: "a terminate that had to be sent again said that the process had ended by itself" },
  { seed: 244, was: "a process that had ended was started a second time" },
  { seed: 79, was: "a wait for a process that had ended long ago was refused" },
  { seed: 1117, was: "a read answered by the server was ahead of the next one" },
  { seed: 2295, was: "a read of a log with a hole gave no chunk where there was one" },
  { seed: 1489, was: "a process whose start ended while its session was detached lost output" },
  { seed: 1230, was: "the same, for a large output" },
  {
    seed: 285,
    was: "output that came with the answer to the start was evicted before anybody could ask for it",
  },
  {
    seed: 901129,
    was: "an `initialize` that its client had given up came after a later one, and took the session away for good",
  },
];
