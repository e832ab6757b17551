import type { Clock } from "../../async/clock.ts";
import type { KeyedQueue } from "../../async/keyed-queue.ts";
import type { TaskSet } from "../../async/task-set.ts";
import type { EnvPolicy, ExecBackend, ExecProcess, TerminalSize } from "../../exec/exec-process.ts";
import type { YieldLimits } from "../calls/yield-window.ts";
import type { LoginEnvironment } from "../login/login-environment.ts";
import type { NetworkAnswers } from "../network/network-questions.ts";
import type { OneTimeNotice } from "../output/one-time-notice.ts";
import type { OutputArchiveStore } from "../output/output-archive-store.ts";
import type { ApprovalGate } from "../policy/approval.ts";
import type { SandboxChoice } from "../policy/sandbox-choice.ts";
import type { SandboxExposure } from "../policy/sandbox-exposure.ts";
import type { ExecSession, ExecSessionCommand } from "./exec-session.ts";
import type { ExecSessionTable } from "./exec-session-table.ts";

/** Shared state of the tools of one unified exec. */
export interface ExecContext {
  backend: ExecBackend;
  clock: Clock;
  cwd: string;
  shell: string;
  /** Returns the changes of a login shell's profile to the environment of commands in this sandbox. */
  login: (shell: string, choice: SandboxChoice) => Promise<LoginEnvironment>;
  loginNotice: OneTimeNotice;
  /** Notice that commands outside the sandbox read no start-up files. */
  startUpNotice: OneTimeNotice;
  /** Reports whether any sandbox on this host lets its commands write. */
  hasWritableRoots: () => boolean;
  /** Finds out which directories of an unsandboxed command sandboxed commands could have written. */
  exposure: (workdir: string) => Promise<SandboxExposure>;
  env: Record<string, string>;
  envPolicy: EnvPolicy | null;
  pipeStdin: boolean;
  terminalSize: TerminalSize;
  sandbox: SandboxChoice;
  /** Name of the /tmp that sandboxed commands share, if they share one. */
  tmpName: string;
  /** Resolves when these tools are closed. */
  ended: Promise<void>;
  yieldLimits: YieldLimits;
  /** Maximum output of any call, regardless of its request. */
  maxOutputTokens: number;
  gate: ApprovalGate;
  /** Answers of users to network questions. */
  networkAnswers: NetworkAnswers;
  sessions: ExecSessionTable;
  archives: OutputArchiveStore;
  tasks: TaskSet;
  writes: KeyedQueue<ExecSession>;
  /** Creates an exec session for a process. Ends a session that is evicted for it. */
  openSession: (sessionId: number, process: ExecProcess, command: ExecSessionCommand) => Promise<ExecSession>;
  newProcessId: () => string;
  newChunkId: () => string;
}
