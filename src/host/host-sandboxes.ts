import type { EnvironmentInfo } from "../protocol/methods.ts";
import { availableSandboxes, supportsManagedNetwork } from "../sandbox/sandbox-probe.ts";
import { MANAGED_NETWORK } from "../tools/policy/sandbox-choice.ts";
import { listenerSupportIfAvailable } from "./native-support.ts";

/** Returns the sandboxes of this host, with an entry for network rules if they enforce all of them. */
export function localSandboxes(): string[] {
  const hasManagedNetwork = supportsManagedNetwork(listenerSupportIfAvailable());
  return hasManagedNetwork ? [...availableSandboxes(), MANAGED_NETWORK] : availableSandboxes();
}

/** Returns the sandboxes of a server, with an entry for network rules if it enforces all of them. */
export function remoteSandboxes(info: EnvironmentInfo): string[] {
  const { sandboxes = [], capabilities = {}, providerId = "" } = info;
  // Other servers ignore the list of ports.
  const isProcwire = providerId?.startsWith("procwire:") ?? false;
  const { networkProxyLaunch = false, networkProxyReviewDomains = false } = capabilities;
  return isProcwire && networkProxyLaunch && networkProxyReviewDomains ? [...sandboxes, MANAGED_NETWORK] : sandboxes;
}
