import type { ExitReason, ProcessListing } from "../../exec/exec-process.ts";

/** Color and mark of a badge. */
export type BadgeTone = "running" | "waiting" | "paused" | "success" | "failure" | "neutral";

/** Text and tone of a badge. */
export interface BadgeText {
  tone: BadgeTone;
  label: string;
  /** Cause of the state; undefined if the label states it. */
  detail?: string | undefined;
}

/** How a process ended. The exit code is null if the server lost track of the process. */
export type ExitInfo = Pick<ProcessListing, "exitCode" | "signal"> & {
  reason?: ExitReason | undefined;
  limit?: string | undefined;
};

/** Returns the badge of a process. */
export function describeProcess({ running, status, exitCode, signal }: ProcessListing): BadgeText {
  if (!running) return describeExit({ exitCode, signal, reason: status?.exitReason, limit: status?.limit });
  if (status?.isHeld) return { tone: "paused", label: "paused", detail: "paused by a slow reader" };
  if (status?.awaits === "secret") return { tone: "waiting", label: "waiting for a password" };
  if (status?.awaits === "key") return { tone: "waiting", label: "waiting for input" };
  return { tone: "running", label: "running" };
}

/** Returns the badge of a process that ended. */
export function describeExit({ exitCode, signal, reason, limit }: ExitInfo): BadgeText {
  const failure = (label: string, detail?: string): BadgeText => ({ tone: "failure", label, detail });
  if (reason === "timeout" || limit === "wallTimeMs") return failure("timed out", "terminated by its timeout");
  if (reason === "limit") return failure("killed", `terminated by the limit ${limit}`);
  if (reason === "sessionExpired") return failure("killed", "terminated with its session");
  if (reason === "terminated") return failure("killed", "terminated");
  if (signal !== null) return failure("killed", `killed by ${signal}`);
  if (exitCode === null || exitCode < 0) return failure("failed", "the server lost track of the process");
  return exitCode === 0 ? { tone: "success", label: "exited 0" } : failure(`exited ${exitCode}`);
}
