import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

export interface Measured {
  wallSeconds: number;
  /** User and system time of the program and everything it started. */
  cpuSeconds: number;
  /** Peak of the largest process, not the sum: a fork before its `exec` would count twice. */
  peakRssMb: number;
  peakDescriptors: number;
  exitCode: number | null;
  /** Whether the program exceeded its timeout and was killed. */
  timedOut: boolean;
  stderr: string;
}

/** Sampling interval: short enough for programs that run for a second, and cheap. */
const SAMPLE_MS = 25;
/** Linux counts processor time in hundredths of a second. */
const TICKS_PER_SECOND = 100;

/** Runs a program until it exits and samples its process tree in /proc. */
export function measure(
  command: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv; timeoutSeconds: number },
): Promise<Measured> {
  const [program = "", ...args] = command;
  const startedAt = performance.now();
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: options.env,
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
  });
  let stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr = (stderr + chunk).slice(-4000);
  });
  const cpuTicks = new Map<number, number>();
  let peakRssMb = 0;
  let peakDescriptors = 0;
  let timedOut = false;
  const sample = () => {
    if (child.pid === undefined) return;
    for (const one of readTree(child.pid)) {
      cpuTicks.set(one.pid, one.cpuTicks);
      peakRssMb = Math.max(peakRssMb, one.rssMb);
      peakDescriptors = Math.max(peakDescriptors, one.descriptors);
    }
    if (performance.now() - startedAt > options.timeoutSeconds * 1000) {
      timedOut = true;
      process.kill(-child.pid, "SIGKILL");
    }
  };
  const timer = setInterval(sample, SAMPLE_MS);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (exitCode) => {
      clearInterval(timer);
      resolve({
        wallSeconds: (performance.now() - startedAt) / 1000,
        cpuSeconds: [...cpuTicks.values()].reduce((sum, ticks) => sum + ticks, 0) / TICKS_PER_SECOND,
        peakRssMb,
        peakDescriptors,
        exitCode,
        timedOut,
        stderr,
      });
    });
  });
}

interface ProcessSample {
  pid: number;
  cpuTicks: number;
  rssMb: number;
  descriptors: number;
}

/** Returns every process in the process group that the started process leads. */
function readTree(group: number): ProcessSample[] {
  const samples: ProcessSample[] = [];
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!(pid > 0)) continue;
    try {
      // The name in parentheses may contain any character, so fields are counted from its end.
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (Number(fields[2]) !== group) continue;
      samples.push({
        pid,
        cpuTicks: Number(fields[11]) + Number(fields[12]),
        rssMb: (Number(fields[21]) * 4096) / 1e6,
        descriptors: readdirSync(`/proc/${pid}/fd`).length,
      });
    } catch {
      // The process exited between the listing and the read.
    }
  }
  return samples;
}
