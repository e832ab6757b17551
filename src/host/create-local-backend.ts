/**
 * Creates the backend of local processes, with the addon if it is available. Only composition roots import it: code that
 * starts processes receives a backend.
 */

import * as option from "../exec/options/option-schema.ts";
import { clockKind, logLimitsKind, variables } from "../exec/options/process-options.ts";
import { LocalBackend, type LocalBackendOptions } from "../local/local-backend.ts";
import type { SupervisorChannel } from "../local/persistent/persistent-child.ts";
import { nodePlatform, type ProcessPlatform } from "../local/platform.ts";
import { loadAddon } from "../native/load-addon.ts";
import { nativePlatform } from "../native/native-process.ts";
import type { CredentialDefinition } from "../protocol/network/credential-definition.ts";
import { localSandbox } from "./local-sandbox.ts";
import { localNetwork, routeLocalProxies, secretFilesOf } from "./network/local-network.ts";

export interface LocalBackendFactoryOptions extends LocalBackendOptions {
  /** The supervisor of this server. */
  supervisor?: SupervisorChannel | null | undefined;
  /** Ignores the addon even if it is available. */
  forceFallback?: boolean | undefined;
  /** Credentials that starts may name. No process inherits the variables of their sources. */
  credentials?: readonly CredentialDefinition[] | undefined;
}

export const supervisorKind = option.objectWith("the channel of a supervisor", "takeRestored");

const localBackendOptions = option.optionsOf<LocalBackendFactoryOptions>(() => ({
  supervisor: option.nullOr(supervisorKind),
  credentials: option.listOf(option.anyObject, "an array of credentials"),
  clock: clockKind,
  eventLogLimits: logLimitsKind,
  degraded: option.texts,
  hostEnv: variables,
  ...option.each(option.flag, "forceFallback", "isLibrary", "subreaper"),
  ...option.each(option.anyObject, "budget", "snapshotBudget", "principalMemories"),
  ...option.each(option.callback, "onOrphansEnded", "onCgroupFailed", "settleSandboxes", "restoreSandbox"),
  ...option.each(option.callback, "resolveSandbox", "createNetwork", "routeProxies"),
}));

/** The first sandboxed start imports the sandbox code. */
export function createLocalBackend(options: LocalBackendFactoryOptions = {}): LocalBackend {
  option.checkOptions("createLocalBackend", options, localBackendOptions);
  return openLocalBackend(options);
}

function openLocalBackend({
  forceFallback,
  supervisor = null,
  // A library has no secret files besides those of its credentials, and no listener.
  credentials = [],
  resolveSandbox = localSandbox({ masked: secretFilesOf(credentials) }).resolve,
  ...options
}: LocalBackendFactoryOptions): LocalBackend {
  let hasSandboxes = false;
  return new LocalBackend(
    forceFallback ? nodePlatform("it was switched off (forceFallback)") : createPlatform(supervisor),
    {
      isLibrary: true,
      createNetwork: localNetwork({ credentials }),
      routeProxies: routeLocalProxies,
      hostEnv: withoutSources(credentials),
      ...options,
      resolveSandbox: (request, params) => {
        hasSandboxes = true;
        return resolveSandbox(request, params);
      },
      settleSandboxes: async () => {
        if (!hasSandboxes) return;
        const { sharedTmpDirectories } = await import("../sandbox/shared-tmp.ts");
        await sharedTmpDirectories.settled();
      },
    },
  );
}

/** Returns the environment without the variables that contain secrets; undefined if there are none. */
function withoutSources(credentials: readonly CredentialDefinition[]): LocalBackendOptions["hostEnv"] {
  const withheld = credentials.flatMap(({ source }) => (source.type === "env" ? [source.variable] : []));
  if (withheld.length === 0) return undefined;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !withheld.includes(name)));
}

function createPlatform(supervisor: SupervisorChannel | null): ProcessPlatform {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativePlatform(loaded.addon, supervisor) : nodePlatform(loaded.why);
}
