import type { Clock } from "../../async/clock.ts";
import type { Lanes } from "../../async/keyed-queue.ts";
import type { TaskSet } from "../../async/task-set.ts";
import type { EnvPolicy, ExecBackend, ExecProcess, TerminalSize } from "../../exec/exec-process.ts";
import type { YieldLimits } from "../calls/yield-window.ts";
import type { LoginEnvironment } from "../login/login-environment.ts";
import type { Notice } from "../output/one-time-notice.ts";
import type { ArchiveShelf } from "../output/output-archive-store.ts";
import type { ApprovalGate } from "../policy/approval.ts";
import type { SandboxChoice } from "../policy/sandbox-choice.ts";
import type { ExecSession, SessionCommand } from "./exec-session.ts";
import type { SessionTable } from "./exec-session-table.ts";

/** What the tools of one unified exec share. */
export interface ExecContext {
  backend: ExecBackend;
  clock: Clock;
  cwd: string;
  shell: string;
  /** What the profile of a login shell does to the environment of commands behind these walls. */
  login: (shell: string, choice: SandboxChoice) => Promise<LoginEnvironment>;
  loginNotice: Notice;
  env: Record<string, string>;
  envPolicy: EnvPolicy | null;
  pipeStdin: boolean;
  terminalSize: TerminalSize;
  sandbox: SandboxChoice;
  /** Names the /tmp that commands behind walls share, where they do. */
  tmpName: string;
  /** Resolves when these tools are closed. */
  ended: Promise<void>;
  yieldLimits: YieldLimits;
  /** No call gets more, whatever it asks for. */
  maxOutputTokens: number;
  gate: ApprovalGate;
  sessions: SessionTable;
  shelf: ArchiveShelf;
  tasks: TaskSet;
  writes: Lanes<ExecSession>;
  /** Begins to follow a process under a number; a session that is evicted for it is ended. */
  openSession: (sessionId: number, process: ExecProcess, command: SessionCommand) => Promise<ExecSession>;
  newProcessId: () => string;
  newChunkId: () => string;
}
