import type { ProcessListing, StartParams } from "../../exec/exec-process.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { MethodName } from "../../protocol/methods.ts";
import { cwdFromUri } from "../../protocol/path-uri.ts";
import type { WireStartParams } from "../../protocol/process-schemas.ts";
import { type ServerConfig, SNAPSHOT_RESPONSE_BYTES } from "../server-config.ts";
import type { Session } from "../session/session.ts";
import type { AttachMethod } from "./attach-methods.ts";
import type { Handlers } from "./handler-types.ts";

type ProcessMethod = Exclude<Extract<MethodName, `process/${string}`>, AttachMethod>;

export interface ProcessMethodDeps {
  session: () => Session;
  /** Returns the processes of all sessions that this connection may see. */
  listAll: () => ProcessListing[];
  config: ServerConfig;
  /** Why persistent processes are unavailable, or null if they are available. */
  persistenceUnavailableReason: string | null;
  /** Limits the pending waits of this connection. */
  waits: { enter: () => () => void };
}

/** The methods on processes of the connection's session. */
export function processMethods(deps: ProcessMethodDeps): Handlers<ProcessMethod> {
  const { session, listAll, config, waits, persistenceUnavailableReason } = deps;
  return {
    "process/start": async (params, context) => {
      const { entry, begin } = await session().start(startParams(params, config, persistenceUnavailableReason));
      context.afterResponse(begin);
      const { processId, sandboxType, droppedEnv } = entry.process;
      return { processId, sandboxType, handle: entry.handle, droppedEnv: droppedEnv && [...droppedEnv] };
    },

    "process/read": async ({ processId, ...params }, context) =>
      (await session().getProcess(processId)).read(params, context),

    "process/write": ({ processId, chunk, writeId }) => session().input.write(processId, chunk, writeId),

    "process/closeStdin": ({ processId }) =>
      session().input.runInOrder(processId, async (entry) =>
        entry ? entry.process.closeStdin() : { status: "unknownProcess" },
      ),

    "process/resize": ({ processId, size }) =>
      session().input.runInOrder(processId, async (entry) => {
        if (!entry) throw session().unknownProcessError(processId);
        await entry.process.resize(size);
        return {};
      }),

    "process/signal": async ({ processId, signal }) => {
      const process = await session().findWritable(processId);
      await process?.signal(signal);
      return {};
    },

    "process/terminate": async ({ processId, mode = { type: "force" } }) => {
      const process = await session().findWritable(processId);
      return process ? process.terminate(mode) : { running: false };
    },

    "process/wait": async ({ processId, ...params }, context) => {
      const leave = waits.enter();
      try {
        const { process } = await session().getProcess(processId);
        return await process.wait({ ...params, signal: context.disconnected });
      } finally {
        leave();
      }
    },

    "process/snapshot": async ({ processId }, { reserveResponseBytes }) => {
      const { process, shared } = await session().getProcess(processId);
      await reserveResponseBytes(SNAPSHOT_RESPONSE_BYTES);
      return { ...(await process.snapshot()), handle: shared.handle, lifetime: shared.lifetime };
    },

    "process/list": async ({ allSessions }) => ({
      processes: allSessions
        ? listAll()
        : session()
            .ownProcesses()
            .map((shared) => shared.listing()),
    }),
  };
}

/** Converts wire params to the params of the backend. */
function startParams(params: WireStartParams, config: ServerConfig, unavailableReason: string | null): StartParams {
  const { metadata, shellSnapshot, networkProxy, enforceManagedNetwork, managedNetwork, ...known } = params;
  const { cwd, mode = "direct", sandboxType, ...rest } = known;
  const { argv, lifetime, sandbox } = rest;
  if (argv.length === 0) throw invalidParams("argv must not be empty");
  requireAllowed(mode, config);
  if (networkProxy !== undefined) throw invalidParams("networkProxy is not supported by this server");
  if (lifetime === "persistent" && unavailableReason !== null)
    throw invalidParams(`lifetime "persistent" is not available: ${unavailableReason}`);
  if (lifetime === "persistent" && sandbox)
    throw invalidParams(
      'lifetime "persistent" is not supported in a sandbox: the sandbox ends with its server; use lifetime "server", or no sandbox',
    );
  // Without a sandbox, these fields have no effect, as in the Codex exec-server.
  if (sandbox && (enforceManagedNetwork || managedNetwork))
    throw invalidParams("sandbox intent cannot be enforced on this executor: a managed network is not supported");
  // Only a prepared request may set the label, because the caller's policy has resolved it.
  const label = mode === "prepared" ? sandboxType : undefined;
  return { ...rest, cwd: cwdFromUri(cwd), mode, sandboxType: label };
}

export function requireAllowed(mode: "direct" | "prepared", config: ServerConfig): void {
  const allowed = mode === "direct" ? config.allowDirectExec : config.allowPreparedExec;
  if (!allowed) throw invalidRequest(`${mode} exec is not allowed on this server`);
}
