import { errorMessage } from "../../base/error-message.ts";
import { intersectDomains } from "../../protocol/network/domain-pattern.ts";
import {
  type ManagedNetwork,
  type NetworkChoice,
  type NetworkWords,
  parseNetworkWords,
  resolveNetworkChoice,
} from "../../tools/network/network-rules.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import type { SandboxMode } from "../../tools/policy/sandbox-mode.ts";
import { UsageError } from "../command.ts";
import type { HelpRow } from "../help/help-page.ts";
import type { ChosenCredentials } from "./credential-options.ts";

/** Options of all commands that run sandboxed commands. */
export const NETWORK_OPTIONS = {
  network: { type: "string", multiple: true },
  credential: { type: "string", multiple: true },
} as const;

/** Options for a sandbox and its network. */
export const SANDBOX_OPTIONS = {
  ...NETWORK_OPTIONS,
  sandbox: { type: "string" },
  writable: { type: "string", multiple: true },
  rules: { type: "string" },
} as const;

/** Help of `NETWORK_OPTIONS`. */
export const NETWORK_ROWS: readonly HelpRow[] = [
  [
    "--network POLICY",
    "on, off, allow:DOMAIN,..., deny:DOMAIN,..., ask:DOMAIN,..., ask, ports:PORT,... or methods:METHOD,...; requires --sandbox; repeatable (default: off)",
  ],
  [
    "--credential DEFINITION",
    "NAME=DOMAIN:HEADER:SOURCE: put a secret of file:PATH or env:VARIABLE into requests; with --connect NAME alone; requires --network; repeatable",
  ],
];

const FIELD = "--network";
const REMEDY = "requires --sandbox read-only or workspace-write";

/** Parses `--network`. Returns null if it is absent. Rejects limits that no sandbox would enforce. */
export function parseNetworkFlag(values: readonly string[] | undefined, mode: SandboxMode): NetworkWords | null {
  const words = withUsageErrors(() => parseNetworkWords(values ?? [], FIELD));
  if (words && words.type !== "on" && mode === "none")
    throw new UsageError(`${FIELD} \`${values?.join(" ")}\` ${REMEDY}`);
  return words;
}

/** Returns the network of sandboxed commands by `--network`, `--credential` and the section `[network]` of `--rules`. */
export function networkFromFlags(
  words: NetworkWords | null,
  policy: ApprovalPolicy | undefined,
  mode: SandboxMode,
  credentials: ChosenCredentials,
): NetworkChoice {
  if (policy?.network && mode === "none") throw new UsageError(`[network] of --rules ${REMEDY}`);
  const choice = withUsageErrors(() => resolveNetworkChoice(words, policy?.network ?? null, FIELD));
  const [first] = credentials.names;
  if (first === undefined) return choice;
  if (mode === "none") throw new UsageError(`credential \`${first}\` ${REMEDY}`);
  if (choice.type !== "managed")
    throw new UsageError(`credential \`${first}\` requires a network policy; give ${FIELD} allow:DOMAIN`);
  for (const { name, domain } of credentials.definitions) requireReachable(choice, name, domain);
  return { ...choice, credentials: credentials.names };
}

/** Rejects a credential whose domain no command can reach. */
function requireReachable(network: ManagedNetwork, name: string, domain: string): void {
  const isReachable = network.layers.every(
    ({ fallback, allow, ask }) =>
      fallback !== "deny" || [...allow, ...ask].some((pattern) => intersectDomains(pattern, domain) !== null),
  );
  // `*` does not cover addresses of this host, so that their intersection is empty.
  if (isReachable || network.layers.some(({ allow }) => allow.includes("*"))) return;
  throw new UsageError(`credential \`${name}\`: no rule allows \`${domain}\`; add ${FIELD} allow:${domain}`);
}

/** Reports whether `--network` itself requests questions, so that a user must be reachable. */
export function asksAboutNetwork(words: NetworkWords | null): boolean {
  if (words?.type !== "rules") return false;
  const { fallback, ask = [] } = words.rules;
  return fallback === "ask" || ask.length > 0;
}

function withUsageErrors<T>(parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new UsageError(errorMessage(error));
  }
}
