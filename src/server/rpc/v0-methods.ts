import { isAbsolute } from "node:path";
import type { HostBackend, HostProcess } from "../../exec/backend/host-backend.ts";
import { isLive } from "../../exec/backend/process-state.ts";
import type { ExecEvent } from "../../exec/exec-process.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { MethodName } from "../../protocol/methods.ts";
import type { ServerConfig } from "../server-config.ts";
import { ProcessPump } from "../session/process-pump.ts";
import type { Handlers } from "./handler-types.ts";
import type { Peer } from "./peer.ts";
import { requireAllowed } from "./process-methods.ts";

type V0Method = Extract<MethodName, `command/${string}`>;

interface OpenProcess {
  process: HostProcess;
  pump: ProcessPump | null;
  tty: boolean;
}

/**
 * Processes of the v0 protocol. The server chooses their ids (`session-1`, `session-2`, …), an id is known until the
 * process exits, and all processes end with their connection. The backend is the same as for `process/*`.
 */
export class V0Processes {
  readonly #backend: HostBackend;
  readonly #peer: Peer;
  readonly #config: ServerConfig;
  readonly #ownerId: string;
  /** Processes whose output streams are open. An id is known to clients only until the exit. */
  readonly #open = new Map<string, OpenProcess>();
  #started = 0;
  /** Starts in flight, which count as live processes. */
  #starting = 0;
  #closed = false;

  constructor(backend: HostBackend, peer: Peer, config: ServerConfig, ownerId: string) {
    this.#ownerId = ownerId;
    this.#backend = backend;
    this.#peer = peer;
    this.#config = config;
  }

  /** Returns a process until its streams have closed, otherwise null. */
  process(sessionId: string): HostProcess | null {
    return this.#open.get(sessionId)?.process ?? null;
  }

  readonly methods: Handlers<V0Method> = {
    "command/exec": async (params, context) => {
      const { argv, cwd, env, tty, arg0 } = params;
      if (argv.length === 0) throw invalidParams("argv must not be empty");
      requireAllowed("direct", this.#config);
      if (!isAbsolute(cwd)) throw invalidParams(`cwd \`${cwd}\` must be an absolute path`);
      if (this.#liveCount() + this.#starting >= this.#config.maxProcesses) {
        throw invalidRequest(
          `too many processes: this connection may have ${this.#config.maxProcesses} live processes at once; end one first, or raise --max-processes`,
        );
      }
      const sessionId = `session-${++this.#started}`;
      this.#starting++;
      const ownerId = this.#ownerId;
      const started = this.#backend.start({ processId: sessionId, argv, cwd, env, tty, arg0, ownerId });
      const process = await started.finally(() => this.#starting--);
      this.#open.set(sessionId, { process, pump: null, tty });
      context.afterResponse(() => this.#begin(sessionId));
      return { sessionId };
    },

    "command/exec/write": async ({ sessionId, chunk }) => {
      const entry = this.#running(sessionId);
      if (!entry) throw invalidRequest(`unknown session id ${sessionId}`);
      if (!entry.tty) throw invalidRequest(`stdin is closed for session ${sessionId}`);
      await entry.process.write(chunk);
      return { accepted: true };
    },

    "command/exec/terminate": async ({ sessionId }) => {
      const entry = this.#running(sessionId);
      if (!entry) return { running: false };
      await entry.process.terminate({ type: "force" });
      return { running: true };
    },
  };

  /** Ends all remaining processes. */
  close(): void {
    this.#closed = true;
    for (const [sessionId, { process, pump }] of this.#open) {
      pump?.stop();
      this.#open.delete(sessionId);
      process.log.dispose();
      void process.terminateWithReason("terminated", { type: "force" }).catch(() => undefined);
    }
  }

  #running(sessionId: string): OpenProcess | null {
    const entry = this.#open.get(sessionId);
    return entry && isLive(entry.process) ? entry : null;
  }

  #liveCount(): number {
    if (this.#open.size < this.#config.maxProcesses) return this.#open.size;
    return [...this.#open.values()].filter(({ process }) => isLive(process)).length;
  }

  #begin(sessionId: string): void {
    const entry = this.#open.get(sessionId);
    if (!entry) return;
    if (this.#closed) {
      this.close();
      return;
    }
    const { process } = entry;
    const notify = (event: ExecEvent) => this.#notify(sessionId, process, event);
    entry.pump = new ProcessPump(process.log, this.#peer, notify, { afterSeq: 0 });
  }

  #notify(sessionId: string, process: HostProcess, event: ExecEvent): void {
    switch (event.type) {
      case "output": {
        const { chunk } = event;
        const stream = event.stream === "stderr" ? "stderr" : "stdout";
        this.#peer.notify({ method: "command/exec/outputDelta", params: { sessionId, stream, chunk } });
        return;
      }
      case "exited":
        this.#peer.notify({ method: "command/exec/exited", params: { sessionId, exitCode: event.exitCode } });
        return;
      case "closed":
        this.#open.delete(sessionId);
        process.log.dispose();
        return;
      case "failed":
        this.#open.delete(sessionId);
        if (process.log.exit === null)
          this.#peer.notify({ method: "command/exec/exited", params: { sessionId, exitCode: -1 } });
        process.log.dispose();
        return;
      case "gap":
        return;
    }
  }
}
