import type { SandboxScope, SandboxType } from "../exec-process.ts";
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
    /** Enters a Landlock domain, if the host supports it: no abstract sockets of the host. */
    landlock?: boolean | undefined;
  };
  sandboxType: SandboxType;
  /**
   * Descriptors of the listeners at the requested ports of the sandbox's own network namespace, in their order; none if
   * the sandbox ended before it listened. The receiver owns them. Absent: no ports were requested.
   */
  listeners?: Promise<readonly number[]> | undefined;
  isDenial: (exit: { exitCode: number; signal: string | null }, log: EventLog) => boolean;
  /** Called once: with the pid, or with null if the start failed. The descriptors are inherited by then. */
  started(pid: number | null): void;
  /** Called once after all output streams have ended. Resolves when the sandbox has released its resources. */
  ended(): Promise<void>;
  /** Host resources of the sandbox, for the record of a persistent process. */
  resources: SandboxResources;
}

/** Host resources that a sandbox needs until it ends. The next server takes them over with a persistent process. */
export interface SandboxResources {
  network: boolean;
  /** Directories, or files with these contents, that occupy missing paths. */
  mountPoints: { path: string; contents?: string | undefined }[];
  /** The shared directory at /tmp: its name in the scope, and the host directory that is removed at the end. */
  tmp?: { name: string; directory: string } | undefined;
  /** First resolutions of the roots in the scope. */
  pins: { key: string; value: string }[];
}

/** The sandbox of a process that an earlier server started. */
export interface RestoredSandbox extends Pick<SandboxedStart, "sandboxType" | "isDenial" | "ended"> {
  /** Shares the resources with later starts of this scope. */
  joinScope(scope: SandboxScope): void;
}
