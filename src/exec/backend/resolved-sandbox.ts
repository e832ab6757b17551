import type { SandboxType } from "../exec-process.ts";
import type { EventLog } from "../log/event-log.ts";

/** Result of resolving a sandbox request: the command that runs in the sandbox, and a check for denials. */
export type ResolvedSandbox = { type: "none" } | SandboxedStart;

export interface SandboxedStart {
  type: "sandboxed";
  /** The command that runs instead. It passes the environment of the requested command into the sandbox. */
  child: {
    file: string;
    argv: string[];
    env: Record<string, string>;
    /** Descriptors inherited as 3, 4 and so on. */
    descriptors: readonly number[];
  };
  sandboxType: SandboxType;
  isDenial: (exit: { exitCode: number; signal: string | null }, log: EventLog) => boolean;
  /** Called once: with the pid, or with null if the start failed. The descriptors are inherited by then. */
  started(pid: number | null): void;
  /** Called once after all output streams have ended. Resolves when the sandbox has released its resources. */
  ended(): Promise<void>;
}
