/** A host whose processes a test scripts, on a manual clock: for behavior that depends on time alone. */

import type { HostBackend, HostProcess, WriteOutcome } from "../../../src/exec/backend/host-backend.ts";
import type { PersistentRecordWriter, PersistentSessionState } from "../../../src/exec/backend/persistent-process.ts";
import {
  DEFAULT_TERMINAL_SIZE,
  type ExitReason,
  type ProcessListing,
  type ProcessTree,
  type StartParams,
  type TerminalSize,
  type TerminateMode,
  type TerminateResult,
  type TtyState,
} from "../../../src/exec/exec-process.ts";
import { EventLog, type EventLogLimits } from "../../../src/exec/log/event-log.ts";
import { SizeHistory } from "../../../src/exec/log/size-history.ts";
import { waitForCondition } from "../../../src/exec/wait/wait-condition.ts";
import { createLocalFileSystem } from "../../../src/files/local-file-system.ts";
import type { HostServices } from "../../../src/server/host-services.ts";
import { ManualClock } from "../manual-clock.ts";

/** The stored record of a persistent process, in memory. */
export class FakeRecord implements PersistentRecordWriter {
  readonly saved: PersistentSessionState[] = [];
  isRemoved = false;

  saveSession(session: PersistentSessionState): void {
    this.saved.push(session);
  }

  remove(): void {
    this.isRemoved = true;
  }
}

export class FakeProcess implements HostProcess {
  readonly processId: string;
  readonly pid = 4242;
  readonly sandboxType = "none";
  readonly log: EventLog;
  readonly params: StartParams;
  readonly written: string[] = [];
  readonly signals: string[] = [];
  paused = false;
  endedFor: ExitReason | null = null;
  /** Reasons of all calls that terminate the process or its descendants, including calls after its exit. */
  readonly endReasons: ExitReason[] = [];
  /** Record of a persistent process, or null. */
  readonly persistent: FakeRecord | null;
  /** While set, writes wait for it. */
  writeGate: Promise<void> | null = null;
  readonly #clock: ManualClock;
  readonly #writeIds = new Set<string>();

  constructor(params: StartParams, clock: ManualClock, limits: Partial<EventLogLimits>) {
    this.processId = params.processId;
    this.params = params;
    this.persistent = params.lifetime === "persistent" ? new FakeRecord() : null;
    this.size = params.tty ? (params.size ?? DEFAULT_TERMINAL_SIZE) : null;
    this.#clock = clock;
    this.log = new EventLog({ clock, limits });
    this.log.onBackpressure = (paused) => {
      this.paused = paused;
    };
  }

  print(text: string): void {
    this.log.append("stdout", Buffer.from(text));
  }

  exit(exitCode = 0, reason: ExitReason = "exited"): void {
    this.log.exited({ exitCode, signal: null, reason, sandboxDenied: false });
  }

  finish(exitCode = 0): void {
    this.exit(exitCode);
    this.log.closed();
  }

  listing(): ProcessListing {
    const { argv, cwd, tty, name, labels } = this.params;
    return {
      processId: this.processId,
      argv,
      cwd,
      tty,
      pid: this.pid,
      running: this.log.exit === null,
      exitCode: this.log.exit?.exitCode ?? null,
      signal: null,
      startedAtMs: 0,
      outputBytes: this.log.totalBytes,
      name,
      labels,
    };
  }

  events(...args: Parameters<EventLog["events"]>) {
    return this.log.events(...args);
  }

  subscribeWake() {
    return this.log.subscribeWake();
  }

  read(params: Parameters<EventLog["readWaiting"]>[0] = {}) {
    return this.log.readWaiting(params);
  }

  /** By default, a write of a test is ordered input. */
  directInput: object | null = null;
  hasOrphans = false;
  readonly inputBytes = 0;
  size: TerminalSize | null = null;
  readonly sizes = new SizeHistory();

  answersQueries = false;
  tty: TtyState | null = null;

  ttyState(): TtyState | null {
    return this.tty;
  }

  tree(): ProcessTree {
    return { processes: [], omitted: 0 };
  }

  /** Ranges of earlier output to whose terminal queries the responder had to reply. */
  readonly answered: { afterSeq: number; throughSeq: number }[] = [];

  setTerminalResponder(answers: boolean, range?: { afterSeq: number }): void {
    this.answersQueries = answers;
    if (range) this.answered.push({ ...range, throughSeq: this.log.nextSeq - 1 });
  }

  answerQueriesIn(range: { afterSeq: number; throughSeq: number }): void {
    this.answered.push(range);
  }

  write(bytes: Uint8Array): Promise<WriteOutcome> {
    return this.writeRaw(bytes);
  }

  async writeRaw(bytes: Uint8Array, { writeId }: { writeId?: string | undefined } = {}): Promise<WriteOutcome> {
    if (this.writeGate) await this.writeGate;
    const isDuplicate = writeId !== undefined && this.#writeIds.has(writeId);
    if (writeId !== undefined) this.#writeIds.add(writeId);
    if (!isDuplicate) this.written.push(Buffer.from(bytes).toString());
    return { status: "accepted", isDuplicate, isFlushed: true };
  }

  async closeStdin(): Promise<{ status: "accepted" }> {
    this.written.push("<closed>");
    return { status: "accepted" };
  }

  async resize(size: TerminalSize): Promise<void> {
    this.written.push(`<${size.rows}x${size.cols}>`);
    if (!this.size) return;
    if (this.sizes.last === null) this.sizes.add({ size: this.size, afterSeq: 0, atMs: 0 });
    this.size = size;
    this.sizes.add({ size, afterSeq: this.log.nextSeq - 1, atMs: Math.round(this.log.ageMs) });
  }

  async kill(signal = "SIGTERM"): Promise<boolean> {
    await this.signal(signal);
    return true;
  }

  async signal(name: string): Promise<void> {
    this.signals.push(name);
  }

  terminate(mode?: TerminateMode): Promise<TerminateResult> {
    return this.terminateWithReason("terminated", mode);
  }

  async terminateWithReason(reason: ExitReason, mode: TerminateMode = { type: "force" }): Promise<TerminateResult> {
    this.endReasons.push(reason);
    if (this.log.exit) return { running: false };
    this.endedFor = reason;
    this.signals.push(mode.type);
    this.exit(137, reason);
    this.log.closed();
    return { running: true };
  }

  wait(params: Parameters<HostProcess["wait"]>[0] = {}) {
    return waitForCondition({ log: this.log, clock: this.#clock, isPortListening: async () => false }, params);
  }

  async snapshot() {
    const stdout = this.log.headTail("stdout");
    return {
      stdout: stdout.bytes(),
      stderr: new Uint8Array(0),
      terminal: new Uint8Array(0),
      truncated: stdout.omittedBytes > 0,
      omittedBytes: stdout.omittedBytes,
      totalBytes: this.log.totalBytes,
      exitCode: this.log.exit?.exitCode ?? null,
      signal: null,
      running: this.log.exit === null,
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.log.dispose();
  }
}

export class FakeHost implements HostServices {
  readonly clock = new ManualClock();
  readonly processes = new Map<string, FakeProcess>();
  readonly logged: string[] = [];
  readonly limits: Partial<EventLogLimits>;
  shutdowns: number[] = [];
  /** While set, starts wait for it. */
  startGate: Promise<void> | null = null;
  #ids = 0;

  constructor(limits: Partial<EventLogLimits> = {}) {
    this.limits = limits;
  }

  readonly backend: HostBackend = {
    start: async (params) => {
      if (this.startGate) await this.startGate;
      const process = new FakeProcess(params, this.clock, this.limits);
      this.processes.set(params.processId, process);
      return process;
    },
    degradedComponents: () => [],
    persistenceUnavailableReason: "this server runs without --supervised",
    shutdown: async (graceMs) => {
      this.shutdowns.push(graceMs);
      for (const process of this.processes.values()) await process.terminateWithReason("terminated");
    },
  };

  readonly files = async () => createLocalFileSystem();
  readonly http: HostServices["http"] = {
    open: () => ({
      request: async () => ({ status: 204, headers: [], body: new Uint8Array(0) }),
      close: () => undefined,
    }),
  };
  readonly environment: HostServices["environment"] = {
    info: () => ({ shell: { name: "sh", path: "/bin/sh" } }),
    describe: async () => ({ shell: { name: "sh", path: "/bin/sh" } }),
    readConfig: async () => ({}),
    discoverRoots: async () => ({}),
    discover: async () => ({}),
  };
  readonly log: HostServices["log"] & {} = (level, message) => void this.logged.push(`${level} ${message}`);
  readonly newId = () => `id-${++this.#ids}`;

  process(processId: string): FakeProcess {
    const process = this.processes.get(processId);
    if (!process) throw new Error(`no process ${processId}`);
    return process;
  }
}
