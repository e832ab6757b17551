/** Fields of `/proc/PID/stat`, see proc_pid_stat(5). */
export interface ProcStat {
  /** The name of the executable, cut to 15 bytes. */
  comm: string;
  /** One letter, for example `R` (running) or `Z` (zombie). */
  state: string;
  parentPid: number;
  processGroup: number;
  /** The POSIX session. */
  session: number;
  userTicks: number;
  systemTicks: number;
  /** CPU time of children that exited and that the process waited for. */
  childUserTicks: number;
  childSystemTicks: number;
  /** Clock ticks from boot to the start of the process. */
  startTime: number;
  /** Resident memory in pages. */
  residentPages: number;
}

/** Returns null if the text is not a complete `/proc/PID/stat` line. */
export function parseProcStat(text: string): ProcStat | null {
  // `comm` is in parentheses and may contain spaces and parentheses itself.
  const commEnd = text.lastIndexOf(")");
  const fields = text.slice(commEnd + 2).split(" ");
  // The manual page numbers the fields from 1; `state` is the third.
  const field = (number: number) => fields[number - 3];
  const state = field(3);
  const startTime = field(22);
  if (commEnd < 0 || state === undefined || startTime === undefined) return null;
  return {
    comm: text.slice(text.indexOf("(") + 1, commEnd),
    state,
    parentPid: Number(field(4)),
    processGroup: Number(field(5)),
    session: Number(field(6)),
    userTicks: Number(field(14)),
    systemTicks: Number(field(15)),
    childUserTicks: Number(field(16)),
    childSystemTicks: Number(field(17)),
    startTime: Number(startTime),
    residentPages: Number(field(24)),
  };
}

/** The unit in which the kernel reports CPU time to user space, on every architecture. */
export const TICK_MS = 10;
