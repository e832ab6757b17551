import { posix } from "node:path";
import { pathEntry } from "../../sandbox/sandbox-request.ts";
import { type ManagedNetwork, type NetworkChoice, type NetworkWords, narrowNetwork } from "../network/network-rules.ts";
import type { ApprovalPolicy } from "./approval.ts";
import { PROTECTED_NAMES } from "./protected-names.ts";

/** The sandbox of a model's commands. */
export type SandboxChoice =
  | { type: "none" }
  | {
      type: "bubblewrap";
      /** Absolute paths on the host of the processes. All other paths are read-only. */
      writableRoots: readonly string[];
      /** Names in each writable root that stay read-only, even if they do not exist yet. Default: `PROTECTED_NAMES`. */
      protectedNames?: readonly string[];
      /** Paths that are inaccessible in the sandbox. */
      deniedRoots?: readonly string[];
      /** False: none. True: the network of the host. Rules: the hosts that they allow, through a proxy. */
      network: boolean | ManagedNetwork;
      /**
       * True: each command has an empty /tmp. `shared`: all commands of these tools share one /tmp, which is removed when
       * the tools are closed. With a root inside /tmp, each command has its own. Default: true.
       */
      privateTmp?: boolean | "shared";
    };

/** The host does not support the chosen sandbox. */
export class SandboxUnavailableError extends Error {
  override readonly name = "SandboxUnavailableError";
}

/** Throws if the host does not support the chosen sandbox. Commands never run with a weaker sandbox. */
export function requireSupportedSandbox(choice: SandboxChoice, hostSandboxes: readonly string[] | undefined): void {
  if (choice.type === "none") return;
  if (hostSandboxes?.includes(choice.type)) {
    requireManagedNetwork(choice, hostSandboxes);
    return;
  }
  const supportText = !hostSandboxes
    ? "the host does not report its sandboxes"
    : `the host supports ${hostSandboxes.length > 0 ? hostSandboxes.join(", ") : "none"}`;
  throw new SandboxUnavailableError(`sandbox \`${choice.type}\` is not available: ${supportText}`);
}

/** Entry of the host's sandboxes that states that they enforce network rules. */
export const MANAGED_NETWORK = "managed-network";

function requireManagedNetwork(
  { network }: { network: boolean | ManagedNetwork },
  hostSandboxes: readonly string[],
): void {
  if (typeof network === "boolean" || hostSandboxes.includes(MANAGED_NETWORK)) return;
  throw new SandboxUnavailableError(
    "network rules are not available: the host cannot enforce them; set the network to `on` or `off`",
  );
}

/**
 * Throws if the network rules of a policy would not apply: without a sandbox, or if the sandbox has the whole network. A
 * sandbox without network is stricter than any rules.
 */
export function requireSandboxForNetwork(approval: ApprovalPolicy | undefined, choice: SandboxChoice): void {
  const managed = choice.type === "none" || typeof choice.network === "boolean" ? null : choice.network;
  const unused = approval?.credentials?.find(({ name }) => !managed?.credentials?.includes(name));
  if (unused)
    throw new Error(
      `[[credential]] \`${unused.name}\` of the rules requires its name in \`sandbox.network.credentials\``,
    );
  if (!approval?.network) return;
  if (choice.type === "none") throw new Error("[network] of the rules requires a sandbox; set `sandbox`");
  if (choice.network === true)
    throw new Error("[network] of the rules conflicts with `sandbox.network: true`; set the rules or false");
}

export function hasManagedNetwork(choice: SandboxChoice): boolean {
  return choice.type !== "none" && typeof choice.network !== "boolean";
}

/** Returns the sandbox with a narrower network. */
export function narrowSandbox(choice: SandboxChoice, words: NetworkWords | null): SandboxChoice {
  if (choice.type === "none") return choice;
  const { network } = choice;
  const base: NetworkChoice = typeof network === "boolean" ? { type: network ? "on" : "off" } : network;
  return { ...choice, network: toSandboxNetwork(narrowNetwork(base, words)) };
}

/** Converts a network choice to the network of a sandbox. */
export function toSandboxNetwork(network: NetworkChoice): boolean | ManagedNetwork {
  return network.type === "managed" ? network : network.type === "on";
}

/**
 * Converts a choice to a sandbox request, or null for none. `tmpName` names the shared /tmp. The host of the processes
 * resolves the request, because only it has the programs, links and descriptors that the sandbox needs.
 */
export function toSandboxRequest(choice: SandboxChoice, tmpName?: string): Record<string, unknown> | null {
  if (choice.type === "none") return null;
  const { writableRoots, protectedNames = PROTECTED_NAMES, deniedRoots = [], privateTmp = true } = choice;
  const protectedPaths = writableRoots.flatMap((root) => protectedNames.map((name) => posix.join(root, name)));
  const entries = [
    { path: { type: "special", value: { kind: "root" } }, access: "read" },
    ...writableRoots.map((path) => pathEntry(path, "write")),
    ...protectedPaths.map((path) => pathEntry(path, "read")),
    ...deniedRoots.map((path) => pathEntry(path, "deny")),
  ];
  return {
    permissions: {
      type: "managed",
      file_system: { type: "restricted", entries },
      // A managed network reaches its proxy only, so the sandbox itself has none.
      network: choice.network === true ? "enabled" : "restricted",
    },
    windowsSandboxLevel: "disabled",
    privateTmp: privateTmp !== false,
    // A server without support for `sharedTmp` gives each command its own /tmp.
    sharedTmp: privateTmp === "shared" ? tmpName : undefined,
    // Only the host knows the user's home directory and PROCWIRE_HOME.
    protectStartUpFiles: true,
  };
}
