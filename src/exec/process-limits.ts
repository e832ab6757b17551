/** What a process may use at most. Each is off unless set; one that cannot be enforced where it runs is refused. */
export interface ProcessLimits {
  /** From its start, by a clock that nobody sets. */
  wallTimeMs?: number | undefined;
  /** Of each process in its tree by itself; full seconds, rounded up. */
  cpuTimeMs?: number | undefined;
  /** Of its whole tree together; needs a memory cgroup. */
  memoryBytes?: number | undefined;
  /** Heap and data of each process in its tree by itself; where there is no cgroup. */
  processMemoryBytes?: number | undefined;
  /** Of each process in its tree by itself. */
  openFiles?: number | undefined;
  /** Processes and threads of its whole tree at once; needs a pids cgroup. */
  processes?: number | undefined;
  /** All streams together; what is beyond it is not told. */
  outputBytes?: number | undefined;
}

export type LimitName = keyof ProcessLimits;

const LIMIT_NAMES = [
  "wallTimeMs",
  "cpuTimeMs",
  "memoryBytes",
  "processMemoryBytes",
  "openFiles",
  "processes",
  "outputBytes",
] as const satisfies readonly LimitName[];

/** Both at once: of each limit the smaller one. Undefined when nothing is limited. */
export function tightest(one: ProcessLimits = {}, other: ProcessLimits = {}): ProcessLimits | undefined {
  const limits: ProcessLimits = {};
  for (const name of LIMIT_NAMES) {
    const values = [one[name], other[name]].filter((value) => value !== undefined);
    if (values.length > 0) limits[name] = Math.min(...values);
  }
  return Object.keys(limits).length === 0 ? undefined : limits;
}
