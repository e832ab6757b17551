import type { ProcessListing, StartParams } from "../../exec/exec-process.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import { cwdFromUri } from "../../protocol/path-uri.ts";
import type { WireStartParams } from "../../protocol/process-schemas.ts";
import type { ShareTokens } from "../auth/share-tokens.ts";
import { type ServerConfig, SNAPSHOT_RESPONSE_BYTES } from "../server-config.ts";
import type { Session } from "../session/session.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { Handlers } from "./handler-types.ts";

type ProcessMethod =
  | "process/start"
  | "process/read"
  | "process/write"
  | "process/signal"
  | "process/terminate"
  | "process/closeStdin"
  | "process/resize"
  | "process/wait"
  | "process/snapshot"
  | "process/list"
  | "process/attach"
  | "process/detach"
  | "process/inputs"
  | "process/claimQueries"
  | "process/tree"
  | "process/share"
  | "process/kill";

export interface ProcessMethodDeps {
  session: () => Session;
  /** Returns the processes of all sessions that this connection may see. */
  listAll: () => ProcessListing[];
  /**
   * Returns the process with this handle. If the connection may not use it, throws the same error as for an unknown
   * handle.
   */
  findProcess: (handle: string) => SharedProcess;
  share: ShareTokens["issue"];
  config: ServerConfig;
  /** Why persistent processes are unavailable, or null if they are available. */
  persistenceUnavailableReason: string | null;
  /** Limits the pending waits of this connection. */
  waits: { enter: () => () => void };
}

/** The `process/*` methods of the Codex protocol and the additions of procwire. */
export function processMethods(deps: ProcessMethodDeps): Handlers<ProcessMethod> {
  const { session, listAll, findProcess, share, config, waits, persistenceUnavailableReason } = deps;
  return {
    "process/start": async (params, context) => {
      const { entry, begin } = await session().start(
        startParams(params, config, persistenceUnavailableReason),
      );
      context.afterResponse(begin);
      const { processId, sandboxType, droppedEnv } = entry.process;
      return { processId, sandboxType, handle: entry.handle, droppedEnv: droppedEnv && [...droppedEnv] };
    },

    "process/read": ({ processId, ...params }, context) => session().read(processId, params, context),

    "process/write": ({ processId, chunk, writeId }) => session().write(processId, chunk, writeId),

    "process/closeStdin": ({ processId }) =>
      session().runInOrder(processId, async (process) => {
        if (!process) return { status: "unknownProcess" };
        return process.closeStdin();
      }),

    "process/resize": ({ processId, size }) =>
      session().runInOrder(processId, async (process) => {
        if (!process) throw session().unknownProcessError(processId);
        await process.resize(size);
        return {};
      }),

    "process/signal": async ({ processId, signal }) => {
      const process = await session().requireDriver(processId);
      await process?.signal(signal);
      return {};
    },

    "process/terminate": ({ processId, mode }) => session().terminate(processId, mode ?? { type: "force" }),

    "process/wait": async ({ processId, ...params }, context) => {
      const leave = waits.enter();
      try {
        const process = await session().get(processId);
        return await process.wait({ ...params, signal: context.disconnected });
      } finally {
        leave();
      }
    },

    "process/snapshot": async ({ processId }, { reserveResponseBytes }) => {
      const { process, shared } = await session().entry(processId);
      await reserveResponseBytes(SNAPSHOT_RESPONSE_BYTES);
      return { ...(await process.snapshot()), handle: shared.handle, lifetime: shared.lifetime };
    },

    "process/list": async ({ allSessions }) => ({
      processes: allSessions ? listAll() : session().listings(),
    }),

    "process/attach": async ({ handle, size, ...options }, context) => {
      const shared = findProcess(handle);
      const { process } = shared;
      const { entry, begin } = session().attachProcess(shared, options);
      // The driver's terminal size applies to the process. Ignore the error of a process that has just ended.
      if (options.role === "driver" && size && process.size)
        await process.resize(size).catch(() => undefined);
      context.afterResponse(begin);
      const { argv, cwd, tty, startedAtMs, running } = process.listing();
      return {
        processId: entry.processId,
        handle,
        // Another session may have become the driver meanwhile.
        role: entry.role === "driver" ? "driver" : "viewer",
        argv,
        cwd,
        tty,
        size: process.size ?? undefined,
        startedAtMs,
        running,
        nextSeq: process.log.nextSeq,
      };
    },

    "process/detach": async ({ processId }) => {
      session().detachProcess(processId);
      return {};
    },

    "process/inputs": async ({ processId }) => (await session().entry(processId)).shared.inputs(),

    "process/claimQueries": async ({ processId, seq }) => {
      const { role, shared } = await session().entry(processId);
      const granted = role === "owner" ? shared.queryArbiter?.claim(seq) : undefined;
      if (granted === undefined)
        throw invalidRequest(
          `process ${processId} was not started by this session with terminalQueries "claimed"`,
        );
      return { granted };
    },

    "process/tree": async ({ handle }) => findProcess(handle).process.tree(),

    "process/share": async ({ handle, role, ttlMs }) => share(findProcess(handle), role, ttlMs),

    "process/kill": async ({ handle, signal, mode }) => {
      const { process } = findProcess(handle);
      if (signal === undefined) return process.terminate(mode ?? { type: "force" });
      if (mode) throw invalidParams("signal and mode are mutually exclusive");
      const running = process.log.exit === null;
      await process.signal(signal);
      return { running };
    },
  };
}

/** Converts wire params to the params of the backend. */
function startParams(
  params: WireStartParams,
  config: ServerConfig,
  unavailableReason: string | null,
): StartParams {
  const { argv, cwd, mode = "direct", networkProxy, sandboxType, ...rest } = params;
  if (argv.length === 0) throw invalidParams("argv must not be empty");
  requireAllowed(mode, config);
  if (networkProxy !== undefined) throw invalidParams("networkProxy is not supported by this server");
  const { processId, env, tty, pipeStdin, arg0, envPolicy, sandbox, size, timeoutMs, secretGuard, limits } =
    rest;
  const { lifetime, maxAgeMs, terminalQueries, recordInput } = rest;
  if (lifetime === "persistent" && unavailableReason !== null)
    throw invalidParams(`lifetime "persistent" is not available: ${unavailableReason}`);
  if (lifetime === "persistent" && sandbox)
    throw invalidParams(
      'lifetime "persistent" is not supported in a sandbox: the sandbox ends with its server; use lifetime "server", or no sandbox',
    );
  // Without a sandbox, these fields have no effect, as in the Codex exec-server.
  if (sandbox && (rest.enforceManagedNetwork || rest.managedNetwork))
    throw invalidParams(
      "sandbox intent cannot be enforced on this executor: a managed network is not supported",
    );
  return {
    processId,
    argv,
    cwd: cwdFromUri(cwd),
    cwdIdentity: rest.cwdIdentity,
    env,
    tty,
    mode,
    pipeStdin,
    arg0,
    envPolicy,
    secretGuard,
    sandbox,
    size,
    timeoutMs,
    limits,
    lifetime,
    maxAgeMs,
    terminalQueries,
    recordInput,
    // Only a prepared request may set the label, because the caller's policy has resolved it.
    sandboxType: mode === "prepared" ? sandboxType : undefined,
  };
}

export function requireAllowed(mode: "direct" | "prepared", config: ServerConfig): void {
  const allowed = mode === "direct" ? config.allowDirectExec : config.allowPreparedExec;
  if (!allowed) throw invalidRequest(`${mode} exec is not allowed on this server`);
}
