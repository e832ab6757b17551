import { readFile, realpath } from "node:fs/promises";
import { posix } from "node:path";
import { errorMessage } from "../../base/error-message.ts";
import { checkArgument, objectWith, text as pathText } from "../../exec/options/option-schema.ts";
import { type CredentialDefinition, parseCredentialTables } from "../../protocol/network/credential-definition.ts";
import { allowHostInFile } from "../network/allow-host.ts";
import { blockedByPolicy } from "../network/network-denial-compat.ts";
import { type NetworkRules, parseNetworkSection } from "../network/network-rules.ts";
import type { ApprovalPolicy, ApprovalRequest } from "./approval.ts";
import { analyzeCommand, type CommandAnalysis, type NestedCommand } from "./command-analysis.ts";
import { hasPrefix } from "./shell-parser.ts";
import { strictest } from "./strictest.ts";
import { SHELLS } from "./wrapper-programs.ts";

export type Decision = "allow" | "ask" | "refuse";

export interface Rule {
  /** First words of the command. */
  prefix: readonly string[];
  decision: Decision;
  /** Whether the rule also applies without a sandbox, in directories that sandboxed commands cannot write. */
  unsandboxed: boolean;
}

export interface Rules {
  rules: readonly Rule[];
  /** Decision for commands without a matching rule. */
  fallback: Decision;
  /** Decision about running without a sandbox if no rule allows it. */
  unsandboxed: Decision;
  /** Network of sandboxed commands; absent without a section `[network]`. */
  network?: NetworkRules | undefined;
  credentials?: readonly CredentialDefinition[] | undefined;
}

const askerKind = objectWith("an ApprovalPolicy", "ask");

/**
 * Loads an approval policy from a rules file:
 *
 *     default = "ask"          # commands without a matching rule
 *     unsandboxed = "ask"      # commands without a sandbox
 *
 *     [[rule]]
 *     prefix = ["systemctl", "status"]
 *     decision = "allow"       # or "ask", or "refuse"
 *     unsandboxed = true       # also without the sandbox
 *
 *     [network]                # hosts that sandboxed commands may reach
 *     default = "ask"          # or "deny", or "allow"; default: "deny"
 *     allow = ["example.com", "*.example.org"]
 *
 *     [[credential]]           # a secret that the proxy puts into requests to its domain
 *     name = "API_KEY"         # variable with the placeholder
 *     domain = "example.com"
 *     header = "Authorization"
 *     source = "file:/etc/procwire-secrets/key"  # or "env:VARIABLE"
 *
 * No command runs without a sandbox and without a prompt if sandboxed commands can write its home directory, its working
 * directory or an enclosing repository, because programs such as git run code from there. `unsandboxed = true` then counts
 * as absent, and `unsandboxed = "allow"` as `"ask"`, unless `default = "allow"` lets every command leave the sandbox.
 *
 * The strictest decision applies to a line of several commands. A line that cannot be parsed, or that neither the
 * configured shell nor a system shell runs, is never allowed without a prompt. Rules that ask or refuse also apply to
 * nested commands of `env`, `sudo`, `xargs`, `bash -c` and similar programs, and to paths such as `/bin/rm`. If a nested
 * command is unknown, the line is not allowed without a prompt either. Rules stop a named command, not a command that a
 * program hides; use a sandbox for that. `asker` asks the user; without it, `ask` means refuse.
 */
export async function loadRulesFile(
  path: string,
  asker?: Pick<ApprovalPolicy, "ask" | "combined">,
): Promise<ApprovalPolicy> {
  checkArgument("loadRulesFile", "path", path, pathText);
  if (asker !== undefined) checkArgument("loadRulesFile", "asker", asker, askerKind);
  const { parse } = await import("smol-toml");
  try {
    const text = await readFile(path, "utf8");
    const policy = rulesPolicy(parseRules(parse(text)), asker);
    const file = await realpath(path);
    return { ...policy, allowHost: (host) => allowHostInFile(file, host) };
  } catch (error) {
    throw new Error(`rules file ${path}: ${errorMessage(error)}`, { cause: error });
  }
}

export function rulesPolicy(given: Rules, asker?: Pick<ApprovalPolicy, "ask" | "combined">): ApprovalPolicy {
  const rules = { ...given, rules: given.rules.flatMap(withoutLoginFlag) };
  return {
    combined: asker?.combined ?? false,
    network: given.network,
    credentials: given.credentials,
    review(request) {
      const decision = decide(rules, request);
      return decision === "refuse"
        ? { type: "refuse", reason: "the rules do not allow this command" }
        : { type: decision };
    },
    ask: async (request, signal, caller) =>
      asker ? asker.ask(request, signal, caller) : { type: "refuse", reason: noApproverMessage(request) },
  };
}

/** Applies a rule for `bash -lc` also to `bash -c`, because the profile does not change the commands of a line. */
function withoutLoginFlag(rule: Rule): Rule[] {
  const [program = "", flag, ...rest] = rule.prefix;
  if (flag !== "-lc" || !SHELLS.has(posix.basename(program))) return [rule];
  return [rule, { ...rule, prefix: [program, "-c", ...rest] }];
}

export function parseRules(file: Record<string, unknown>): Rules {
  const { rule: rules = [], default: fallback = "ask", unsandboxed = "ask", network, credential, ...unknown } = file;
  const unknownKey = Object.keys(unknown)[0];
  if (unknownKey !== undefined) throw new Error(`unknown key \`${unknownKey}\``);
  if (!Array.isArray(rules)) throw new Error("`rule` must be a list of tables: [[rule]]");
  return {
    rules: rules.map(parseRule),
    fallback: parseDecision(fallback, "default"),
    unsandboxed: parseDecision(unsandboxed, "unsandboxed"),
    network: network === undefined ? undefined : parseNetworkSection(network),
    credentials: credential === undefined ? undefined : parseCredentialTables(credential),
  };
}

function parseRule(value: unknown, index: number): Rule {
  const location = `rule ${index + 1}`;
  if (typeof value !== "object" || value === null) throw new Error(`${location} is not a table`);
  const {
    prefix,
    decision,
    unsandboxed = false,
    ...unknown
  } = { prefix: null, decision: null, ...value } as Record<string, unknown>;
  const unknownKey = Object.keys(unknown)[0];
  if (unknownKey !== undefined) throw new Error(`${location}: unknown key \`${unknownKey}\``);
  if (!isWords(prefix)) throw new Error(`${location}: \`prefix\` must be a list of words`);
  if (typeof unsandboxed !== "boolean") throw new Error(`${location}: \`unsandboxed\` must be true or false`);
  return { prefix, decision: parseDecision(decision, `${location}: decision`), unsandboxed };
}

function isWords(value: unknown): value is string[] {
  return Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === "string");
}

function parseDecision(value: unknown, location: string): Decision {
  if (value === "allow" || value === "ask" || value === "refuse") return value;
  throw new Error(`\`${location}\` must be "allow", "ask" or "refuse"`);
}

function noApproverMessage({ shell, argv, network }: ApprovalRequest): string {
  if (network) return blockedByPolicy(network);
  return shell === "other"
    ? `the rules do not cover the shell \`${argv[0]}\`, and approvals are disabled`
    : "the rules require an approval, but approvals are disabled";
}

function decide(given: Rules, request: ApprovalRequest): Decision {
  const { commands, argv, shell, kind } = request;
  const leavesSandbox = kind !== "command";
  const rules = leavesSandbox && request.sandboxWritable ? withoutEscape(given) : given;
  const fallback = leavesSandbox ? strictest(rules.fallback, rules.unsandboxed) : rules.fallback;
  const restrictingRules = rules.rules.filter(({ decision }) => decision !== "allow");
  const analysis = analyzeCommand(argv);
  // A rule for `bash` does not apply to the shell that runs every command.
  const nested = shell === "other" ? analysis.commands : analysis.commands.slice(1);
  const nestedDecision = decideNested(restrictingRules, { ...analysis, commands: nested });
  const lineDecision = commands
    ? commands.map((command) => decideCommand(rules, command, leavesSandbox, fallback)).reduce(strictest)
    : strictest(fallback, "ask");
  return strictest(nestedDecision, lineDecision);
}

/** Returns the rules without permission to leave the sandbox without a prompt. */
function withoutEscape({ rules, fallback, unsandboxed }: Rules): Rules {
  return {
    rules: rules.map((rule) => ({ ...rule, unsandboxed: false })),
    fallback,
    // If every command may leave the sandbox, a prompt for some of them protects nothing.
    unsandboxed: fallback === "allow" ? unsandboxed : strictest(unsandboxed, "ask"),
  };
}

/** Applies the rules that ask or refuse to all nested commands. */
function decideNested(restrictingRules: readonly Rule[], { commands, hidden }: CommandAnalysis): Decision {
  const mayHideForbidden = restrictingRules.length > 0 && hidden === "certainly";
  return commands
    .flatMap((command) => restrictingRules.map((rule) => decideForbidden(rule, command)))
    .reduce(strictest, mayHideForbidden ? "ask" : "allow");
}

function decideForbidden({ prefix, decision }: Rule, { argv, open, guessed }: NestedCommand): Decision {
  switch (matchStrength(argv, prefix, open)) {
    case "none":
      return "allow";
    case "maybe":
      return "ask";
    case "same":
      return guessed ? "ask" : decision;
  }
}

/**
 * Reports whether a rule's prefix matches the command; the program may have any path. Returns `maybe` if options precede
 * the remaining words, or if further arguments come from another source.
 */
function matchStrength(
  words: readonly string[],
  [program = "", ...rest]: readonly string[],
  open: boolean,
): "same" | "maybe" | "none" {
  const [first = "", ...given] = words;
  if (posix.basename(first) !== posix.basename(program)) return "none";
  for (const [index, word] of rest.entries()) {
    const actual = given[index];
    if (actual === word) continue;
    if (actual === undefined) return open ? "maybe" : "none";
    if (!actual.startsWith("-")) return "none";
    return open || isSubsequence(rest.slice(index), given.slice(index)) ? "maybe" : "none";
  }
  return "same";
}

/** Reports whether `all` contains `some` in this order, possibly with other words between. */
function isSubsequence(some: readonly string[], all: readonly string[]): boolean {
  let found = 0;
  for (const word of all) if (word === some[found]) found++;
  return found === some.length;
}

function decideCommand(rules: Rules, command: readonly string[], leavesSandbox: boolean, fallback: Decision): Decision {
  const matching = rules.rules.filter((rule) => hasPrefix(command, rule.prefix));
  if (matching.length === 0) {
    const mayHide =
      rules.rules.some(({ decision }) => decision !== "allow") && analyzeCommand(command).hidden !== "nothing";
    return mayHide ? strictest(fallback, "ask") : fallback;
  }
  return matching
    .map((rule) => (leavesSandbox && !rule.unsandboxed ? strictest(rule.decision, rules.unsandboxed) : rule.decision))
    .reduce(strictest);
}
