import { errorMessage } from "../../base/error-message.ts";
import { isObject } from "../../base/type-guards.ts";
import { intersectDomains, matchesDomain, parseDomainPattern } from "../../protocol/network/domain-pattern.ts";
import { strictest } from "../policy/strictest.ts";

export type HostDecision = "allow" | "ask" | "deny";

/** Hosts that sandboxed commands may reach. The strictest matching list decides: deny, then ask, then allow. */
export interface NetworkRules {
  /** Decision for hosts that no list contains. */
  fallback: HostDecision;
  /** Domain patterns, normalized by `parseDomainPattern`. */
  allow: readonly string[];
  ask: readonly string[];
  deny: readonly string[];
  /** Destination ports; null: all. Other ports are denied without a question. */
  ports: readonly number[] | null;
  /** Methods of plain HTTP requests; null: all. The proxy cannot see the methods in a tunnel, so it denies tunnels. */
  methods: readonly string[] | null;
}

/**
 * The network of sandboxed commands: none, all of it, or the hosts that every layer of rules allows. A later layer can
 * only narrow the earlier ones.
 */
export type NetworkChoice = { type: "off" } | { type: "on" } | ManagedNetwork;

export interface ManagedNetwork {
  type: "managed";
  layers: readonly NetworkRules[];
  /** Names of credentials of the host. */
  credentials?: readonly string[] | undefined;
}

/** The parsed values of one `--network` option, which may be repeated. */
export type NetworkWords = { type: "off" } | { type: "on" } | { type: "rules"; rules: GivenRules };

/** Rules whose absent fields have their default. */
type GivenRules = { readonly [K in keyof NetworkRules]?: NetworkRules[K] | undefined };

const WORDS = "on, off, ask, allow:DOMAIN,..., deny:DOMAIN,..., ask:DOMAIN,..., ports:PORT,... or methods:METHOD,...";

/**
 * Parses the words of a network policy, as in `--network`. Returns null if there are none. `field` names the option in
 * errors.
 */
export function parseNetworkWords(words: readonly string[], field: string): NetworkWords | null {
  const [only, ...more] = words;
  if (only === undefined) return null;
  if (words.includes("on") || words.includes("off")) {
    const other = words.find((word) => word !== only);
    if (other !== undefined) throw new Error(`${field} \`${only}\` conflicts with \`${other}\`; give one of them`);
    return { type: only === "on" ? "on" : "off" };
  }
  const lists = [only, ...more].map((word) => parseWord(word, field));
  return { type: "rules", rules: lists.reduce(mergeGiven) };
}

function parseWord(word: string, field: string): GivenRules {
  if (word === "ask") return { fallback: "ask" };
  const [, name = "", list = ""] = /^(\w+):(.*)$/s.exec(word) ?? [];
  const items = list.split(",").map((item) => item.trim());
  switch (name) {
    case "allow":
    case "ask":
    case "deny":
      return { [name]: items.map((item) => parsePattern(item, name, `${field} \`${word}\``)) };
    case "ports":
      return {
        ports: items.map((item) => parsePort(/^\d+$/.test(item) ? Number(item) : item, `${field} \`${word}\``)),
      };
    case "methods":
      return { methods: items.map((item) => parseMethod(item, `${field} \`${word}\``)) };
    default:
      throw new Error(`${field} \`${word}\` is unknown; give ${WORDS}`);
  }
}

/** Merges rules of one author: lists add up, and a later default replaces an earlier one. */
function mergeGiven(a: GivenRules, b: GivenRules): GivenRules {
  const union = <T>(some: readonly T[] = [], others: readonly T[] = []) => [...new Set([...some, ...others])];
  return {
    fallback: b.fallback ?? a.fallback,
    allow: union(a.allow, b.allow),
    ask: union(a.ask, b.ask),
    deny: union(a.deny, b.deny),
    ports: a.ports && b.ports ? union(a.ports, b.ports) : (b.ports ?? a.ports),
    methods: a.methods && b.methods ? union(a.methods, b.methods) : (b.methods ?? a.methods),
  };
}

function completeRules(given: GivenRules): NetworkRules {
  const { fallback = "deny", allow = [], ask = [], deny = [], ports = null, methods = null } = given;
  return { fallback, allow, ask, deny, ports, methods };
}

/** Parses the section `[network]` of a rules file. */
export function parseNetworkSection(section: unknown): NetworkRules {
  if (!isObject(section)) throw new Error("`network` must be a table: [network]");
  const { default: fallback = "deny", allow = [], ask = [], deny = [], ports, methods, ...unknown } = section;
  const [unknownKey] = Object.keys(unknown);
  if (unknownKey !== undefined)
    throw new Error(`[network]: unknown key \`${unknownKey}\`; expected default, allow, ask, deny, ports or methods`);
  if (fallback !== "allow" && fallback !== "ask" && fallback !== "deny")
    throw new Error(`[network]: \`default\` is ${JSON.stringify(fallback)}; expected "deny", "ask" or "allow"`);
  return {
    fallback,
    allow: parseList(allow, "allow"),
    ask: parseList(ask, "ask"),
    deny: parseList(deny, "deny"),
    ports: ports === undefined ? null : parsePorts(ports),
    methods: methods === undefined ? null : parseMethods(methods),
  };
}

function parseList(value: unknown, name: "allow" | "ask" | "deny"): string[] {
  if (!Array.isArray(value) || !value.every((item) => typeof item === "string"))
    throw new Error(`[network]: \`${name}\` must be a list of domains such as ["example.com", "*.example.org"]`);
  return value.map((item) => parsePattern(item, name, `[network]: \`${name}\``));
}

function parsePattern(text: string, list: "allow" | "ask" | "deny", location: string): string {
  let pattern: string;
  try {
    pattern = parseDomainPattern(text);
  } catch (error) {
    throw new Error(`${location}: ${errorMessage(error)}`, { cause: error });
  }
  if (pattern !== "*" || list === "allow") return pattern;
  const remedy = list === "deny" ? 'use `off`, or `default = "deny"`' : 'use the word `ask`, or `default = "ask"`';
  throw new Error(`${location}: \`*\` cannot be in the ${list} list; ${remedy}`);
}

function parsePorts(value: unknown): number[] {
  if (!Array.isArray(value) || value.length === 0)
    throw new Error("[network]: `ports` must be a list of port numbers such as [443, 80]");
  return value.map((port) => parsePort(port, "[network]: `ports`"));
}

function parsePort(value: unknown, location: string): number {
  // A TOML parser may return integers as bigint.
  const port = typeof value === "bigint" ? Number(value) : value;
  if (typeof port === "number" && Number.isInteger(port) && port >= 1 && port <= 65535) return port;
  throw new Error(`${location}: \`${String(value)}\` is not a port; give a number from 1 to 65535`);
}

function parseMethods(value: unknown): string[] {
  if (!Array.isArray(value) || value.length === 0)
    throw new Error('[network]: `methods` must be a list of HTTP methods such as ["GET", "HEAD"]');
  return value.map((method) => parseMethod(method, "[network]: `methods`"));
}

function parseMethod(value: unknown, location: string): string {
  if (value === "CONNECT")
    throw new Error(`${location}: \`CONNECT\` opens a tunnel, whose methods the proxy cannot see; remove \`methods\``);
  if (typeof value === "string" && /^[A-Z]+$/.test(value)) return value;
  throw new Error(`${location}: \`${String(value)}\` is not an HTTP method; give a name such as GET`);
}

/**
 * Merges the words of a user with the section of the user's rules file. Lists add up; words replace the section's
 * default, ports and methods. Returns `off` if neither is given.
 */
export function resolveNetworkChoice(
  words: NetworkWords | null,
  section: NetworkRules | null,
  field: string,
): NetworkChoice {
  if (words?.type === "on" && section)
    throw new Error(`${field} \`on\` conflicts with [network] of the rules file; remove one of them`);
  if (words && words.type !== "rules") return words;
  if (!words && !section) return { type: "off" };
  const { ports = section?.ports ?? null, methods = section?.methods ?? null, ...given } = words?.rules ?? {};
  const rules = completeRules({ ...mergeGiven(section ?? {}, given), ports, methods });
  if (!section && rules.fallback === "deny" && rules.allow.length === 0 && rules.ask.length === 0)
    throw new Error(`${field} allows no host; add allow:DOMAIN, allow:* or ask, or give \`off\``);
  return { type: "managed", layers: [rules] };
}

/** Returns the network that `base` and the words of a narrower policy both allow. Never allows more than `base`. */
export function narrowNetwork(base: NetworkChoice, words: NetworkWords | null): NetworkChoice {
  if (!words || words.type === "on" || base.type === "off") return base;
  if (words.type === "off") return words;
  const layer = completeRules(words.rules);
  // Words that only deny, or only limit ports or methods, leave all other hosts to the base.
  const listsHosts = layer.allow.length > 0 || layer.ask.length > 0 || words.rules.fallback !== undefined;
  const narrower = listsHosts ? layer : { ...layer, fallback: "allow" as const };
  return base.type === "on" ? { type: "managed", layers: [narrower] } : { ...base, layers: [...base.layers, narrower] };
}

/** Decides about a normalized host by the strictest layer. */
export function decideHost({ layers }: ManagedNetwork, host: string, port: number): HostDecision {
  return layers.map((rules) => decideLayer(rules, host, port)).reduce(strictest, "allow");
}

function decideLayer({ fallback, allow, ask, deny, ports }: NetworkRules, host: string, port: number): HostDecision {
  const isListed = (patterns: readonly string[]) => patterns.some((pattern) => matchesDomain(pattern, host));
  if (ports && !ports.includes(port)) return "deny";
  if (isListed(deny)) return "deny";
  if (isListed(ask)) return "ask";
  return isListed(allow) ? "allow" : fallback;
}

/** Patterns of hosts that every layer allows, unless another list contains them. */
export function allowedPatterns({ layers }: ManagedNetwork): string[] {
  const perLayer = layers.map(({ allow, fallback }) => (fallback === "allow" ? [...allow, "*"] : allow));
  const [first = [], ...rest] = perLayer;
  const common = rest.reduce<readonly string[]>(
    (some, others) => some.flatMap((a) => others.flatMap((b) => intersectDomains(a, b) ?? [])),
    first,
  );
  return [...new Set(common)];
}
