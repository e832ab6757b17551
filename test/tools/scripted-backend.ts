import type {
  ExecBackend,
  ExecProcess,
  ExitStatus,
  StartParams,
  TerminateMode,
  TtyState,
} from "../../src/exec/exec-process.ts";
import { EventLog } from "../../src/exec/log/event-log.ts";
import { waitForCondition } from "../../src/exec/wait/wait-condition.ts";
import { notFound } from "../../src/protocol/errors.ts";
import { WORKDIR_SCRIPT } from "../../src/tools/policy/resolve-workdir.ts";
import { EXPOSURE_SCRIPT } from "../../src/tools/policy/sandbox-exposure.ts";
import { ManualClock } from "../support/manual-clock.ts";

/**
 * A backend with scripted processes and a manual clock, for tests of timing. Each process has a real event log.
 */
export class ScriptedBackend implements ExecBackend {
  readonly clock = new ManualClock();
  readonly started: ScriptedProcess[] = [];
  /** Login shells that were started to capture their environment. */
  readonly logins: ScriptedProcess[] = [];
  /** Variables that their profile sets. */
  loginVariables: Record<string, string> = {};
  loginHangs = false;
  /** Error of the next starts; null if they succeed. */
  startError: string | null = null;

  async start(params: StartParams): Promise<ScriptedProcess> {
    if (this.startError !== null) throw notFound(this.startError);
    const process = new ScriptedProcess(params, this.clock);
    if (params.argv[2] === WORKDIR_SCRIPT) {
      process.print(`${params.cwd}\n`);
      process.end(0);
      return process;
    }
    if (params.argv[2] === EXPOSURE_SCRIPT) {
      const [workdir = "", ...roots] = params.argv.slice(4);
      const paths = [...roots.map((root) => `=${root}`), ":home", "=/h", ":workdir", `=${workdir}`, ":end"];
      process.print(paths.map((path) => `${path}\0`).join(""));
      process.end(0);
      return process;
    }
    if (params.argv[2]?.includes("env -0")) {
      this.logins.push(process);
      if (this.loginHangs) return process;
      const [mark] = params.argv.slice(4);
      const after = Object.entries(this.loginVariables).map(([name, value]) => `${name}=${value}\0`);
      process.print(`${mark}\0HOME=/h\0${mark}\0HOME=/h\0${after.join("")}${mark}\0`);
      process.end(0);
      return process;
    }
    this.started.push(process);
    return process;
  }

  async list(): Promise<never[]> {
    return [];
  }

  get last(): ScriptedProcess {
    const process = this.started.at(-1);
    if (!process) throw new Error("nothing has been started");
    return process;
  }
}

export class ScriptedProcess implements ExecProcess {
  readonly processId: string;
  readonly pid = null;
  readonly sandboxType: ExecProcess["sandboxType"];
  readonly params: StartParams;
  readonly log: EventLog;
  /** Written input, and signals as `<name>`. */
  readonly input: string[] = [];
  terminated = false;
  /** Mode of the last `terminate` call. */
  terminateMode: TerminateMode | undefined;
  /** Whether `terminate` ends the process. */
  diesWhenTerminated = true;
  writeStatus: "accepted" | "stdinClosed" = "accepted";
  /** Writes resolve after this promise. */
  blocked: Promise<void> | null = null;
  tty: TtyState | null = null;
  handle: string | null = null;
  onDriverChanged: (driver: "attached" | "none") => void = () => undefined;
  readonly #clock: ManualClock;

  constructor(params: StartParams, clock: ManualClock) {
    this.processId = params.processId;
    this.sandboxType = params.sandboxType ?? "none";
    this.params = params;
    this.#clock = clock;
    this.log = new EventLog({ clock });
  }

  print(text: string, stream: "stdout" | "stderr" | "pty" = this.params.tty ? "pty" : "stdout"): void {
    this.log.append(stream, new TextEncoder().encode(text));
  }

  printBytes(bytes: number[], stream: "stdout" | "stderr" = "stdout"): void {
    this.log.append(stream, Uint8Array.from(bytes));
  }

  exit(exitCode: number, more: Partial<ExitStatus> = {}): void {
    this.log.exited({ exitCode, signal: null, reason: "exited", sandboxDenied: false, ...more });
  }

  close(): void {
    this.log.closed();
  }

  end(exitCode: number): void {
    this.exit(exitCode);
    this.close();
  }

  events(options?: Parameters<ExecProcess["events"]>[0]) {
    return this.log.events(options);
  }

  subscribeWake() {
    return this.log.subscribeWake();
  }

  read(params = {}) {
    return this.log.readWaiting(params);
  }

  async write(bytes: Uint8Array) {
    if (this.writeStatus === "accepted") this.input.push(new TextDecoder().decode(bytes));
    await this.blocked;
    return { status: this.writeStatus };
  }

  async closeStdin() {
    return { status: "accepted" } as const;
  }

  async resize(): Promise<void> {}

  async kill(signal = "SIGTERM"): Promise<boolean> {
    await this.signal(signal);
    return true;
  }

  async signal(name: string): Promise<void> {
    this.input.push(`<${name}>`);
  }

  async terminate(mode?: TerminateMode) {
    this.terminated = true;
    this.terminateMode = mode;
    const running = this.log.exit === null;
    if (this.diesWhenTerminated && running) {
      this.exit(143, { signal: "SIGTERM", reason: "terminated" });
      this.close();
    }
    return { running };
  }

  wait(params = {}) {
    return waitForCondition({ log: this.log, clock: this.#clock, isPortListening: async () => false }, params);
  }

  async snapshot() {
    return {
      stdout: new Uint8Array(0),
      stderr: new Uint8Array(0),
      terminal: new Uint8Array(0),
      truncated: false,
      omittedBytes: 0,
      totalBytes: this.log.totalBytes,
      exitCode: this.log.exit?.exitCode ?? null,
      signal: null,
      running: this.log.exit === null,
      ...(this.tty && { tty: this.tty }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.log.dispose();
  }
}
