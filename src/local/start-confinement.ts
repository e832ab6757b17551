/** Network and sandbox of a start. */

import type { ResolvedSandbox, SandboxedStart } from "../exec/backend/resolved-sandbox.ts";
import { sandboxRequirementError } from "../exec/backend/sandbox-requirement.ts";
import type { SandboxType, StartParams } from "../exec/exec-process.ts";
import { invalidParams } from "../protocol/errors.ts";
import type { RouteProxies, SandboxNetwork } from "./enforced-network.ts";
import { isNetworkEnforced, proxiedNetwork, refusalCommand } from "./enforced-network.ts";
import type { CreateProcessNetwork, ProcessNetwork, TreeConnectionsDeps } from "./process-network.ts";
import { TreeConnections } from "./process-network.ts";

/** The start of a sandboxed process, as the sandbox resolver receives it. */
export type SandboxedStartParams = StartParams & {
  /** A descriptor of the working directory. The caller owns it and keeps it open until the start has ended. */
  directory?: number | undefined;
  /** Ports of a managed network, at which the sandbox listens on its own loopback interface. */
  listenPorts?: readonly number[] | undefined;
  /** Host files that are readable in the sandbox, also where it hides their directory. */
  readableFiles?: readonly string[] | undefined;
};

export interface ConfinementOptions {
  /** Resolves a sandbox request; null if it is unsupported. Without this option every request is rejected. */
  resolveSandbox?: ((request: unknown, start: SandboxedStartParams) => Promise<ResolvedSandbox | null>) | undefined;
  /** Creates the network proxy of a process. Without this option a start with `networkProxy` is rejected. */
  createNetwork?: CreateProcessNetwork | undefined;
  /** Serves an enforced network without `networkProxy`. Without this option such a start is rejected. */
  routeProxies?: RouteProxies | undefined;
}

/** Returns null for a start without a network policy. Connections to its listeners must come from the process tree. */
export async function createNetwork(
  params: StartParams,
  options: ConfinementOptions,
  deps: TreeConnectionsDeps,
): Promise<ProcessNetwork | null> {
  const { credentials = [] } = params;
  if (credentials.length > 0 && (!isNetworkEnforced(params) || params.networkProxy === undefined))
    throw invalidParams(
      `credentials \`${credentials.join(", ")}\` require networkProxy, enforceManagedNetwork and a sandbox`,
    );
  if (params.networkProxy === undefined) return null;
  if (params.lifetime === "persistent")
    throw invalidParams(
      'lifetime "persistent" is not supported with networkProxy: the proxy ends with its server; use lifetime "server"',
    );
  if (!options.createNetwork) throw invalidParams("networkProxy is not supported by this backend");
  const connections = new TreeConnections(deps);
  return options.createNetwork(params, (connection) => connections.includes(connection));
}

/** Returns the network of a sandboxed process that may reach only proxies: its own, or those of its environment. */
export async function enforcedNetwork(
  { lifetime, networkProxy }: StartParams,
  { routeProxies }: ConfinementOptions,
  { proxy, env }: { proxy: ProcessNetwork | null; env: Record<string, string> },
): Promise<SandboxNetwork> {
  if (lifetime === "persistent")
    throw invalidParams(
      'lifetime "persistent" is not supported with enforceManagedNetwork: the listeners of the sandbox end with the server; use lifetime "server"',
    );
  if (proxy) return proxiedNetwork(proxy, { hasSocks: networkProxy?.proxy.enableSocks5 ?? false });
  if (!routeProxies) throw invalidParams("enforceManagedNetwork is not supported by this backend");
  return routeProxies(env);
}

/** Returns null for a start without a sandbox. */
export async function resolveStartSandbox(
  start: SandboxedStartParams,
  options: ConfinementOptions,
  network: SandboxNetwork | null,
): Promise<SandboxedStart | null> {
  if (start.sandbox === undefined || start.sandbox === null) {
    const { sandboxRequirement: requirement } = start;
    if (requirement) throw sandboxRequirementError(requirement, "the start requests no sandbox");
    return null;
  }
  const refusal = network?.refusal ?? null;
  const argv = refusal === null ? start.argv : refusalCommand(refusal);
  const resolved = await options.resolveSandbox?.(start.sandbox, { ...start, argv });
  if (!resolved) throw invalidParams("sandbox intent cannot be enforced on this executor");
  if (resolved.type === "none" ? network !== null : network !== null && !resolved.listeners)
    throw invalidParams("sandbox intent cannot be enforced on this executor: it has no managed network");
  if (resolved.type === "none") return null;
  return refusal === null ? resolved : { ...resolved, isDenial: () => true };
}

/** The sandbox type of an unsandboxed start. A caller that sandboxed the command itself names the type. */
export function sandboxLabel({ sandbox, sandboxType }: StartParams): SandboxType {
  return sandbox === undefined || sandbox === null ? (sandboxType ?? "none") : "none";
}
