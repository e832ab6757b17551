import { readFile } from "node:fs/promises";
import { posix } from "node:path";
import { messageOf } from "../../base/error-message.ts";
import type { ApprovalPolicy, ApprovalRequest } from "./approval.ts";
import type { Reach, ReachedCommand } from "./command-analysis.ts";
import { reachOf } from "./command-analysis.ts";
import { hasPrefix } from "./shell-parser.ts";
import { SHELLS } from "./wrapper-programs.ts";

export type Decision = "allow" | "ask" | "refuse";

export interface Rule {
  /** The words a command begins with. */
  prefix: readonly string[];
  decision: Decision;
  /** The rule also holds outside of the sandbox. */
  unsandboxed: boolean;
}

export interface Rules {
  rules: readonly Rule[];
  /** For commands no rule speaks of. */
  fallback: Decision;
  /** For leaving the sandbox, where no rule allows it. */
  unsandboxed: Decision;
}

/**
 * Decides by a file:
 *
 *     default = "ask"          # for commands no rule speaks of
 *     unsandboxed = "ask"      # for leaving the sandbox
 *
 *     [[rule]]
 *     prefix = ["git", "status"]
 *     decision = "allow"       # or "ask", or "refuse"
 *     unsandboxed = true       # also without the sandbox
 *
 * A line of several commands is as strict as its strictest. A line whose commands cannot be told from its text, or that
 * a shell other than the configured one and the system's own would run, is never simply allowed. Rules that ask or refuse
 * also speak of what `/bin/rm`, `env`, `sudo`, `xargs`, `bash -c` and similar programs run; when they cannot see what that is,
 * it is not simply allowed either. They stop who names a command, not who hides it in a program: for that there are
 * walls. Who is asked is up to `asker`; without one an `ask` is a no.
 */
export async function loadRulesFile(
  path: string,
  asker?: Pick<ApprovalPolicy, "ask" | "together">,
): Promise<ApprovalPolicy> {
  const text = await readFile(path, "utf8");
  const { parse } = await import("smol-toml");
  try {
    return rulesPolicy(parseRules(parse(text)), asker);
  } catch (error) {
    const why = messageOf(error);
    throw new Error(`rules file ${path}: ${why}`, { cause: error });
  }
}

export function rulesPolicy(given: Rules, asker?: Pick<ApprovalPolicy, "ask" | "together">): ApprovalPolicy {
  const rules = { ...given, rules: given.rules.flatMap(alsoWithoutLogin) };
  return {
    together: asker?.together ?? false,
    review(request) {
      const decision = decide(rules, request);
      return decision === "refuse"
        ? { type: "refuse", reason: "the rules do not allow this command" }
        : { type: decision };
    },
    ask: async (request, signal, caller) =>
      asker ? asker.ask(request, signal, caller) : { type: "refuse", reason: nobodyToAsk(request) },
  };
}

/** A rule about `bash -lc` speaks of `bash -c` too: whether the profile is read does not change what a line runs. */
function alsoWithoutLogin(rule: Rule): Rule[] {
  const [program = "", flag, ...rest] = rule.prefix;
  if (flag !== "-lc" || !SHELLS.has(posix.basename(program))) return [rule];
  return [rule, { ...rule, prefix: [program, "-c", ...rest] }];
}

export function parseRules(file: Record<string, unknown>): Rules {
  const { rule: rules = [], default: fallback = "ask", unsandboxed = "ask", ...unknown } = file;
  const stray = Object.keys(unknown)[0];
  if (stray !== undefined) throw new Error(`unknown key \`${stray}\``);
  if (!Array.isArray(rules)) throw new Error("`rule` must be a list of tables: [[rule]]");
  return {
    rules: rules.map(parseRule),
    fallback: decisionOf(fallback, "default"),
    unsandboxed: decisionOf(unsandboxed, "unsandboxed"),
  };
}

function parseRule(value: unknown, index: number): Rule {
  const where = `rule ${index + 1}`;
  if (typeof value !== "object" || value === null) throw new Error(`${where} is not a table`);
  const {
    prefix,
    decision,
    unsandboxed = false,
    ...unknown
  } = { prefix: null, decision: null, ...value } as Record<string, unknown>;
  const stray = Object.keys(unknown)[0];
  if (stray !== undefined) throw new Error(`${where}: unknown key \`${stray}\``);
  if (!isWords(prefix)) throw new Error(`${where}: \`prefix\` must be a list of words`);
  if (typeof unsandboxed !== "boolean") throw new Error(`${where}: \`unsandboxed\` must be true or false`);
  return { prefix, decision: decisionOf(decision, `${where}: decision`), unsandboxed };
}

function isWords(value: unknown): value is string[] {
  return Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === "string");
}

function decisionOf(value: unknown, where: string): Decision {
  if (value === "allow" || value === "ask" || value === "refuse") return value;
  throw new Error(`\`${where}\` must be "allow", "ask" or "refuse"`);
}

function nobodyToAsk({ shell, argv }: ApprovalRequest): string {
  return shell === "other"
    ? `the rules do not cover what the shell \`${argv[0]}\` runs, and nobody can be asked`
    : "the rules want a person to be asked, and nobody can be";
}

function decide(rules: Rules, { commands, argv, shell, kind }: ApprovalRequest): Decision {
  const leaves = kind !== "command";
  const fallback = leaves ? strictest(rules.fallback, rules.unsandboxed) : rules.fallback;
  const forbidding = rules.rules.filter(({ decision }) => decision !== "allow");
  const reach = reachOf(argv);
  // A rule about `bash` does not mean the shell that every command is run by.
  const reached = shell === "other" ? reach.commands : reach.commands.slice(1);
  const forbidden = decideReached(forbidding, { ...reach, commands: reached });
  const said = commands
    ? commands.map((command) => decideOne(rules, command, leaves, fallback)).reduce(strictest)
    : strictest(fallback, "ask");
  return strictest(forbidden, said);
}

/** What the rules that are no permission say of everything that would run. */
function decideReached(forbidding: readonly Rule[], { commands, hidden }: Reach): Decision {
  if (forbidding.length === 0) return "allow";
  return commands
    .flatMap((command) => forbidding.map((rule) => decideForbidden(rule, command)))
    .reduce(strictest, hidden === "certainly" ? "ask" : "allow");
}

function decideForbidden({ prefix, decision }: Rule, { words, open, guessed }: ReachedCommand): Decision {
  switch (resemblance(words, prefix, open)) {
    case "none":
      return "allow";
    case "maybe":
      return "ask";
    case "same":
      return guessed ? "ask" : decision;
  }
}

/**
 * Is it the command a rule names? The program may be named by any path. With options before the rest of the words, or
 * with words to come, it may be.
 */
function resemblance(
  words: readonly string[],
  [program = "", ...rest]: readonly string[],
  open: boolean,
): "same" | "maybe" | "none" {
  const [first = "", ...given] = words;
  if (posix.basename(first) !== posix.basename(program)) return "none";
  for (const [index, word] of rest.entries()) {
    const one = given[index];
    if (one === word) continue;
    if (one === undefined) return open ? "maybe" : "none";
    if (!one.startsWith("-")) return "none";
    return open || isWithin(rest.slice(index), given.slice(index)) ? "maybe" : "none";
  }
  return "same";
}

/** Do the words come in this order, with others in between? */
function isWithin(some: readonly string[], all: readonly string[]): boolean {
  let found = 0;
  for (const word of all) if (word === some[found]) found++;
  return found === some.length;
}

function decideOne(rules: Rules, command: readonly string[], leaves: boolean, fallback: Decision): Decision {
  const matching = rules.rules.filter((rule) => hasPrefix(command, rule.prefix));
  if (matching.length === 0) {
    const mayHide =
      rules.rules.some(({ decision }) => decision !== "allow") && reachOf(command).hidden !== "nothing";
    return mayHide ? strictest(fallback, "ask") : fallback;
  }
  return matching
    .map((rule) =>
      leaves && !rule.unsandboxed ? strictest(rule.decision, rules.unsandboxed) : rule.decision,
    )
    .reduce(strictest);
}

const STRICTNESS: Record<Decision, number> = { allow: 0, ask: 1, refuse: 2 };

function strictest(a: Decision, b: Decision): Decision {
  return STRICTNESS[a] >= STRICTNESS[b] ? a : b;
}
