import type { SandboxType } from "./exec-process.ts";
import type { EventLog } from "./log/event-log.ts";

/** A sandbox intent turned into walls: what to run instead, and how to tell afterwards that they refused something. */
export type ResolvedSandbox = { type: "none" } | ResolvedWalls;

export interface ResolvedWalls {
  type: "walls";
  /** What is run instead. The command's own environment is given to it behind the walls. */
  child: {
    file: string;
    argv: string[];
    env: Record<string, string>;
    /** To be passed on as 3, 4 and so on. */
    descriptors: readonly number[];
  };
  sandboxType: SandboxType;
  wasDenied: (exit: { exitCode: number; signal: string | null }, log: EventLog) => boolean;
  /** Called once: it runs, or (null) could not be started. The descriptors have been passed on. */
  started(pid: number | null): void;
  /** Called once after it has run: every stream of it has ended. Resolves when nothing of the walls is left. */
  ended(): Promise<void>;
}
