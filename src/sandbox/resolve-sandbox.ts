import { errorMessage } from "../base/error-message.ts";
import { MISSING_RUNTIME_SUPPORT } from "../base/js-runtime.ts";
import type { ListenerSupport } from "../exec/backend/listener-channel.ts";
import type { ResolvedSandbox, RestoredSandbox, SandboxResources } from "../exec/backend/resolved-sandbox.ts";
import { sandboxRequirementError } from "../exec/backend/sandbox-requirement.ts";
import type { SandboxScope } from "../exec/exec-process.ts";
import type { EventLog } from "../exec/log/event-log.ts";
import { RequestError } from "../protocol/errors.ts";
import { isWithin, type SandboxPolicy, type SandboxRoot } from "./bubblewrap.ts";
import { DENIAL_TAIL_BYTES, isSandboxDenial } from "./denial-compat.ts";
import { hostServicePaths } from "./host-service-sockets.ts";
import type { LandlockSupport } from "./landlock-rules.ts";
import { MaskedPaths, maskFor } from "./masked-paths.ts";
import { mountPoints } from "./mount-points.ts";
import { pinsOf, restorePins } from "./pinned-roots.ts";
import { enforceRequirement } from "./required-sandbox.ts";
import { type EnforcedSandboxRequest, resolvePolicy, type SandboxTarget } from "./resolve-policy.ts";
import { buildSandboxCommand } from "./sandbox-command.ts";
import { sandboxPrograms } from "./sandbox-probe.ts";
import { parseSandboxRequest, unenforceableSandbox } from "./sandbox-request.ts";
import { type SharedTmpLease, sharedTmpDirectories } from "./shared-tmp.ts";

/** Settings that all sandboxes of a host share. */
export interface SandboxHost {
  maskedPaths: MaskedPaths;
  /** Called when a sandboxed process with network access starts; returns a function to call when it has exited. */
  onNetworkAllowed(pid: number): () => void;
  /** Null if this host supports no managed networks. */
  listenerSupport: ListenerSupport | null;
  /** Null if kernel or addon have no Landlock rules for files. */
  landlock: LandlockSupport | null;
}

const PLAIN_HOST: SandboxHost = {
  maskedPaths: new MaskedPaths([]),
  onNetworkAllowed: () => () => undefined,
  listenerSupport: null,
  landlock: null,
};

/**
 * Resolves a sandbox request of the wire protocol on this host. Throws a RequestError if the request cannot be enforced
 * completely; a command never runs with a weaker sandbox.
 */
export async function resolveSandbox(
  value: unknown,
  start: SandboxTarget,
  host: SandboxHost = PLAIN_HOST,
): Promise<ResolvedSandbox> {
  const { listenPorts, sandboxRequirement: requirement } = start;
  const parsed = parseSandboxRequest(value, { hasManagedNetwork: listenPorts !== undefined });
  if (parsed.type === "none") {
    if (requirement) throw sandboxRequirementError(requirement, "the request has no restrictions");
    return { type: "none" };
  }
  const listeners = listenPorts && { ports: listenPorts, support: requireListenerSupport(host) };
  const request = listeners ? { ...parsed, network: false } : parsed;
  const programs = sandboxPrograms();
  if (!programs) throw unenforceableSandbox({ reason: MISSING_RUNTIME_SUPPORT ?? undefined });
  const heldMountPoints: string[] = [];
  let tmp: SharedTmpLease | null = null;
  const release = async () => {
    await Promise.all([mountPoints.release(heldMountPoints.splice(0)), tmp?.release()]);
  };
  try {
    const policy = await resolvePolicy(request, start, (path, placeholder) => {
      mountPoints.acquire(path, placeholder);
      heldMountPoints.push(path);
    });
    // A managed network gives access to hosts that the client chooses.
    const reached = { ...policy, network: policy.network || listeners !== undefined };
    if (requirement) await enforceRequirement(requirement, reached);
    tmp = acquireSharedTmp(request, policy, start.sandboxScope);
    if (tmp) policy.tmp = { directory: tmp.directory };
    const { readableFiles = [] } = start;
    const readable = readableFiles.map((path): SandboxRoot => ({ path, access: "read", kind: "file", opened: true }));
    const masked = [...host.maskedPaths.roots(policy.roots), ...maskedServices(request)];
    const roots = [...policy.roots, ...masked, ...readable];
    const { landlock } = host;
    const command = { argv: withArg0(start), env: start.env, directory: start.directory, listeners, landlock };
    const sandboxCommand = buildSandboxCommand({ ...policy, roots }, command, programs);
    const { file, argv, env, descriptors, channel, hasLandlockRules } = sandboxCommand;
    const { network } = policy;
    let onEnded = () => {};
    return {
      type: "sandboxed",
      child: { file, argv, env, descriptors, landlock: !hasLandlockRules && !programs.isSetuid },
      sandboxType: SANDBOX_TYPE,
      listeners: channel?.listeners,
      resources: {
        network,
        mountPoints: heldMountPoints.map((path) => mountPoints.describe(path)),
        tmp: tmp && request.sharedTmp !== null ? { name: request.sharedTmp, directory: tmp.outer } : undefined,
        pins: pinsOf(start.sandboxScope),
      },
      isDenial: (exit, log) => isSandboxDenial(exit, outputTail(log), { network }),
      started: (pid) => {
        sandboxCommand[Symbol.dispose]();
        if (pid === null) {
          channel?.close();
          void release();
        } else if (network) onEnded = host.onNetworkAllowed(pid);
      },
      ended: () => {
        channel?.close();
        onEnded();
        return release();
      },
    };
  } catch (error) {
    await release();
    throw error instanceof RequestError ? error : unenforceableSandbox({ cause: error, reason: errorMessage(error) });
  }
}

function requireListenerSupport({ listenerSupport }: SandboxHost): ListenerSupport {
  if (listenerSupport) return listenerSupport;
  throw unenforceableSandbox({ reason: "a managed network requires the native addon; run `procwire doctor`" });
}

const SANDBOX_TYPE = "linuxSeccomp";

/** Takes over the sandbox of a persistent process from the server that started it. */
export function restoreSandbox(
  { network, mountPoints: held, tmp, pins }: SandboxResources,
  pid: number,
  host: SandboxHost = PLAIN_HOST,
): RestoredSandbox {
  for (const { path, contents } of held) mountPoints.adopt(path, contents);
  const shared = tmp ? sharedTmpDirectories.adopt(tmp.directory, tmp.name) : null;
  const onEnded = network ? host.onNetworkAllowed(pid) : () => undefined;
  return {
    sandboxType: SANDBOX_TYPE,
    isDenial: (exit, log) => isSandboxDenial(exit, outputTail(log), { network }),
    joinScope: (scope) => {
      restorePins(scope, pins);
      shared?.joinScope(scope);
    },
    ended: async () => {
      onEnded();
      await Promise.all([mountPoints.release(held.map(({ path }) => path)), shared?.release()]);
    },
  };
}

/**
 * Returns the shared /tmp if the request names one. Returns null if a root is inside /tmp: bubblewrap would create its
 * mount point in a directory that earlier commands could write, and follow a link in it.
 */
function acquireSharedTmp(
  request: EnforcedSandboxRequest,
  policy: SandboxPolicy,
  scope: SandboxScope | undefined,
): SharedTmpLease | null {
  if (policy.tmp !== "private" || request.sharedTmp === null || !scope) return null;
  if (policy.roots.some(({ path }) => isWithin(path, "/tmp"))) return null;
  return sharedTmpDirectories.acquire(scope, request.sharedTmp);
}

/** Without network access no sandboxed command can reach a service. */
function maskedServices(request: EnforcedSandboxRequest): SandboxRoot[] {
  if (!request.network) return [];
  const named =
    request.files.type === "unrestricted"
      ? []
      : request.files.entries.flatMap(({ location }) => (location.type === "path" ? [location.path] : []));
  // A request may name such a service to get access to it.
  const others = hostServicePaths().filter((path) => !named.some((name) => isWithin(name, path)));
  return others.map(maskFor).filter((root) => root !== null);
}

/** The sandbox's own executables come first in argv, so bash sets `argv[0]` inside the sandbox. */
function withArg0({ argv, arg0 }: SandboxTarget): string[] {
  return arg0 === undefined ? argv : ["bash", "-c", 'exec -a "$0" "$@"', arg0, ...argv];
}

function outputTail(log: EventLog): Uint8Array {
  const streams = (["stdout", "stderr", "pty"] as const).map((stream) =>
    log
      .headTail(stream)
      .bytes()
      .subarray(-DENIAL_TAIL_BYTES / 2),
  );
  return Buffer.concat(streams);
}
